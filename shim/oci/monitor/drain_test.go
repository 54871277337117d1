package monitor

import (
	"context"
	"io"
	"os"
	"testing"
	"testing/synctest"
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
	return newEnded(t, in, out), out
}

// output is how much a process of newEnded has written.
const output = 32 << 10

// newEnded makes the session of a process that has ended and whose output goes to in. Its
// reader is out.
func newEnded(t *testing.T, in, out *os.File) *session {
	t.Helper()
	r, name := newRelay(t, in)
	w := openWriter(t, name)
	if _, err := w.Write(make([]byte, output)); err != nil {
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
	return &session{shim: &client.Shim{TTRPCTaskService: ended{}}, relays: []*relay{r}, impatience: newImpatience()}
}

// newSocketStalled is newStalled with a socket.
func newSocketStalled(t *testing.T) (s *session, out *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 4096); err != nil {
		t.Fatal(err)
	}
	in, out := os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
	return newEnded(t, in, out), out
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

// What a slow reader reads counts as moved while the rest waits for it.
func TestSlowReaderIsSeen(t *testing.T) {
	for name, stalls := range map[string]func(*testing.T) (*session, *os.File){"pipe": newStalled, "socket": newSocketStalled} {
		t.Run(name, func(t *testing.T) {
			s, out := stalls(t)
			moved := int64(0)
			for range output/(8<<10) - 2 { // what follows may be in the pipe already
				moved = s.awaitMoved(t, moved)
				if _, err := io.ReadFull(out, make([]byte, 8<<10)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// awaitMoved waits until more has moved, and returns how much.
func (s *session) awaitMoved(t *testing.T, before int64) int64 {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if now := s.moved(); now > before {
			return now
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes have moved, although the reader reads", before)
		}
	}
}

// A reader that reads, however slowly, gets the output of a process that was killed, for
// some time.
func TestAwaitStall(t *testing.T) {
	for _, c := range []struct{ every, reads, want time.Duration }{
		{stalled, 0, stalled},
		{stalled - time.Millisecond, 10 * time.Second, 12 * time.Second},
		{stalled - time.Millisecond, time.Hour, drainLimit},
		{2*stalled + time.Millisecond, time.Hour, stalled},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			awaitStall(t.Context(), func() int64 { return int64(min(time.Since(began), c.reads) / c.every) })
			if took := time.Since(began); took != c.want {
				t.Errorf("a reader that reads every %v for %v is waited for for %v, want %v", c.every, c.reads, took, c.want)
			}
		})
	}
}

// A signal to a process whose exit the shim holds back ends the wait for the reader,
// in whichever order its answer and the exit code come; one of long ago does not.
func TestImpatience(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*impatience)
		want bool
	}{
		"exited by itself": {func(i *impatience) { i.ended(0) }, false},
		"killed":           {func(i *impatience) { i.ended(137) }, true},
		"signal, exit":     {func(i *impatience) { i.passed(); time.Sleep(drainLimit); i.ended(0) }, true},
		"exit, signal":     {func(i *impatience) { i.ended(0); i.passed() }, true},
		"reloaded":         {func(i *impatience) { i.passed(); time.Sleep(time.Hour); i.ended(0) }, false},
		"twice":            {func(i *impatience) { i.set(); i.ended(137) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newImpatience()
				c.do(i)
				ctx, cancel := context.WithCancel(t.Context())
				if !c.want {
					cancel()
				}
				if got := i.await(ctx); got != c.want {
					t.Errorf("it is set: %t", got)
				}
				cancel()
			})
		})
	}
}

// ending is a shim that has ended.
type ending struct{ task.TTRPCTaskService }

func (ending) Kill(context.Context, *task.KillRequest) (*emptypb.Empty, error) {
	return nil, errdefs.ErrUnavailable
}

// A signal ends the wait for the reader also if the shim has ended after the process.
func TestSignalAfterTheShimsEnd(t *testing.T) {
	s := &session{shim: &client.Shim{TTRPCTaskService: ending{}}, impatience: newImpatience()}
	s.impatience.ended(3)
	s.pass(unix.SIGWINCH)
	if s.impatience.isSet {
		t.Error("SIGWINCH ends the wait")
	}
	s.pass(unix.SIGTERM)
	if !s.impatience.isSet {
		t.Error("SIGTERM does not end the wait")
	}
}
