package monitor

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/katabox/katabox/shim/client"
)

// ended is the shim of a process that has ended.
type ended struct{ task.TTRPCTaskService }

func (ended) Kill(context.Context, *task.KillRequest) (*emptypb.Empty, error) {
	return nil, errdefs.ErrNotFound
}

// newStalled makes the session of a process that has ended, with more output than the
// pipe to its reader, out, can hold.
func newStalled(t *testing.T) (s *session, out *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	r, name := newRelay(t, in)
	w := openWriter(t, name)
	if _, err := w.Write(make([]byte, 32<<10)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = out.Close()
		r.await(t)
		_ = in.Close()
	})
	return &session{shim: &client.Shim{TTRPCTaskService: ended{}}, relays: []*relay{r}, impatience: newImpatience()}, out
}

// drained starts to drain and reports the end.
func (s *session) drained() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.drain()
	}()
	return done
}

// The output of a process that ended by itself waits for its reader until a signal comes.
func TestDrainUntilASignal(t *testing.T) {
	s, _ := newStalled(t)
	done := s.drained()
	s.pass(unix.SIGWINCH)
	select {
	case <-done:
		t.Fatal("unread output was given up")
	case <-time.After(stalled + time.Second):
	}
	s.pass(unix.SIGTERM)
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("a signal does not end it")
	}
}

// A reader that reads, however slowly, gets the output of a process that was killed.
func TestDrainToASlowReader(t *testing.T) {
	s, out := newStalled(t)
	s.impatience.set()
	done := s.drained()
	got, block := 0, make([]byte, 8<<10)
	for got < 32<<10 {
		time.Sleep(stalled / 2)
		select {
		case <-done:
			if got < 24<<10 { // more than the pipe holds is missing
				t.Fatalf("given up after %d bytes", got)
			}
		default:
		}
		n, err := out.Read(block)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}
