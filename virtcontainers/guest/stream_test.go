package guest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// newProcess makes a container c1 that waits for its streams.
func newProcess(t *testing.T, c *guest.Client) {
	t.Helper()
	_, err := c.Task().Create(t.Context(), &task.CreateTaskRequest{ID: "c1", Stdin: "x", Stdout: "x", Stderr: "x"})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenStream(t *testing.T) {
	a := newAgent(t)
	c := connect(t, a)
	newProcess(t, c)
	stdout, _, err := c.OpenStream(t.Context(), "c1", "", api.Stream_STREAM_STDOUT, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	stdin, _, err := c.OpenStream(t.Context(), "c1", "", api.Stream_STREAM_STDIN, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := a.Write("c1", "", "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stdin, "input"); err != nil {
		t.Fatal(err)
	}
	if err := stdin.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := a.ReadInput("c1", ""); got != "input" || err != nil {
		t.Errorf("stdin %q, %v", got, err)
	}
	if err := a.Exit("c1", "", 0); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(stdout); string(got) != "hello" || err != nil {
		t.Errorf("stdout %q, %v", got, err)
	}
}

// A bound stream has no deadline, even when the context with which it was
// opened ends.
func TestStreamOutlivesItsContext(t *testing.T) {
	a := newAgent(t)
	c := connect(t, a)
	newProcess(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	conn, _, err := c.OpenStream(ctx, "c1", "", api.Stream_STREAM_STDOUT, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	if err := a.Write("c1", "", "x"); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
}

func TestOpenStreamFails(t *testing.T) {
	a := newAgent(t)
	c := connect(t, a)
	newProcess(t, c)
	open := func(ctx context.Context, id string) error {
		conn, _, err := c.OpenStream(ctx, id, "", api.Stream_STREAM_STDERR, nil)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	if err := open(t.Context(), "none"); !errors.As(err, new(guest.RefusedError)) || !strings.Contains(err.Error(), "open STREAM_STDERR stream: agent: container none") {
		t.Errorf("no such container: %v", err)
	}
	if err := open(t.Context(), strings.Repeat("x", api.MaxFrame)); err == nil {
		t.Error("an id beyond all bounds was sent")
	}
	a.Fail(fakeguest.Dial+" 1027", errInjected)
	if err := open(t.Context(), "c1"); !errors.Is(err, errInjected) {
		t.Errorf("dial: %v", err)
	}
	a.Fail(fakeguest.Dial+" 1027", nil)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errInjected)
	defer cancel()
	release := make(chan struct{})
	defer close(release)
	a.Hook(fakeguest.Stream, func(context.Context, proto.Message) error {
		<-release
		return nil
	})
	if err := open(ctx, "c1"); err == nil {
		t.Error("a stream that was never bound was opened")
	}
	if err := open(ctx, "c1"); err == nil {
		t.Error("a stream was opened with an ended context")
	}
}

// answerWith returns a client whose streams are answered with those bytes.
func answerWith(t *testing.T, answer []byte) *guest.Client {
	t.Helper()
	a := newAgent(t)
	c, err := guest.Connect(t.Context(), func(ctx context.Context, port uint32) (guest.Conn, error) {
		if port != api.PortStream {
			return a.Dial(ctx, port)
		}
		host, other, err := fakeguest.SocketPair()
		if err != nil {
			return nil, err
		}
		go play(other, answer)
		return host, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func play(conn net.Conn, answer []byte) {
	defer conn.Close()
	if api.ReadFrame(conn, new(api.StreamOpen)) == nil {
		_, _ = conn.Write(answer)
	}
}

func TestStreamAnsweredWithGarbage(t *testing.T) {
	frame := func(length uint32, body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, length), body...)
	}
	for name, answer := range map[string][]byte{
		"nothing":         nil,
		"half a length":   {0, 0},
		"half a frame":    frame(8, "xx"),
		"a huge frame":    frame(1<<31, "xx"),
		"not protobuf":    frame(4, "\xff\xff\xff\xff"),
		"too long by one": frame(api.MaxFrame+1, strings.Repeat("x", api.MaxFrame+1)),
	} {
		c := answerWith(t, answer)
		if conn, _, err := c.OpenStream(t.Context(), "c1", "", api.Stream_STREAM_STDOUT, nil); err == nil {
			t.Errorf("%s: the stream was opened", name)
			_ = conn.Close()
		}
	}
}
