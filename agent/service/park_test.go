package service

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// bindStream binds a stream, as the stream server does, and returns the host's end
// and how much was sent before.
func bindStream(t *testing.T, p *Pod, id, execID string, stream api.Stream) (net.Conn, uint64) {
	t.Helper()
	stdio, err := p.FindStdio(id, execID)
	if err != nil {
		t.Fatal(err)
	}
	place, err := stdio.Reserve(stream)
	if err != nil {
		t.Fatal(err)
	}
	host, guest := net.Pipe()
	t.Cleanup(func() { _ = host.Close() })
	_ = host.SetDeadline(time.Now().Add(20 * time.Second))
	place.Attach(guest, nil)
	return host, place.Sent
}

// withStdio starts a container and an exec with input and output.
func withStdio(t *testing.T, p *Pod, id, execID string) {
	t.Helper()
	req := createRequest(t, id)
	req.Stdin, req.Stdout = "in", "out"
	if _, err := p.create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	exec := execRequest(t, id, execID)
	exec.Stdin, exec.Stdout = "in", "out"
	if err := p.addExec(exec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, proc := range p.allProcesses() {
			proc.stdio.Child().Close()
			proc.stdio.Close()
		}
	})
}

func TestPark(t *testing.T) {
	pod, runtime := testPod(t)
	withStdio(t, pod, "c", "e")
	in, _ := bindStream(t, pod, "c", "", api.Stream_STREAM_STDIN)
	out, _ := bindStream(t, pod, "c", "", api.Stream_STREAM_STDOUT)
	execOut, _ := bindStream(t, pod, "c", "e", api.Stream_STREAM_STDOUT)
	if _, err := pod.start(t.Context(), "c", ""); err != nil {
		t.Fatal(err)
	}
	_, _ = runtime.last.init.stdout.WriteString("hello")
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write([]byte("abc"))
	inputs := []*api.ParkedInput{
		{ContainerId: "c", Bytes: 3}, {ContainerId: "c", ExecId: "deleted", Bytes: 9}, {ContainerId: "deleted", Bytes: 9},
	}
	for range 2 {
		if err := pod.park(t.Context(), inputs); err != nil {
			t.Fatal(err)
		}
	}
	for what, conn := range map[string]net.Conn{"stdin": in, "stdout": out, "exec's stdout": execOut} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection lives: %v", what, err)
		}
	}
	if _, err := pod.start(t.Context(), "c", "e"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("an exec was started without its streams: %v", err)
	}
	_, _ = runtime.last.init.stdout.WriteString(" again")
	out, sent := bindStream(t, pod, "c", "", api.Stream_STREAM_STDOUT)
	got := make([]byte, 6)
	if _, err := io.ReadFull(out, got); err != nil || string(got) != " again" || sent != 5 {
		t.Errorf("%q after %d bytes, %v", got, sent, err)
	}
}

// An input that does not come is named in the error, and holds up no other stream.
func TestParkWithoutItsInput(t *testing.T) {
	pod, _ := testPod(t)
	withStdio(t, pod, "c", "e")
	bindStream(t, pod, "c", "e", api.Stream_STREAM_STDIN)
	out, _ := bindStream(t, pod, "c", "", api.Stream_STREAM_STDOUT)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := pod.park(ctx, []*api.ParkedInput{{ContainerId: "c", ExecId: "e", Bytes: 7}})
	want := "process e of container c: park stdin: wait for input: 0 of 7 bytes have arrived: context deadline exceeded"
	if err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other stream's connection lives: %v", err)
	}
}

// What is parked can be deleted.
func TestDeleteWhileParked(t *testing.T) {
	pod, runtime := testPod(t)
	withStdio(t, pod, "c", "e")
	for _, stream := range []api.Stream{api.Stream_STREAM_STDIN, api.Stream_STREAM_STDOUT} {
		bindStream(t, pod, "c", "", stream)
	}
	if _, err := pod.start(t.Context(), "c", ""); err != nil {
		t.Fatal(err)
	}
	if err := pod.park(t.Context(), []*api.ParkedInput{{ContainerId: "c"}}); err != nil {
		t.Fatal(err)
	}
	runtime.last.init.exit(3)
	wait(t, pod, "c", "")
	if resp, err := pod.delete(t.Context(), "c", ""); err != nil || resp.GetExitStatus() != 3 {
		t.Errorf("%v, %v", resp, err)
	}
}
