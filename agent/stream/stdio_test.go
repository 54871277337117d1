package stream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	stdin  = api.Stream_STREAM_STDIN
	stdout = api.Stream_STREAM_STDOUT
	stderr = api.Stream_STREAM_STDERR
)

func newStdio(t testing.TB, req Request) *Stdio {
	t.Helper()
	s, err := New(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Child().Close()
		s.Close()
	})
	return s
}

// socketPair is a connection with buffers and half-close, as vsock has.
func socketPair(t testing.TB) (host, guest *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	_ = a.SetDeadline(time.Now().Add(20 * time.Second))
	return a.(*net.UnixConn), b.(*net.UnixConn)
}

// attach binds a stream and returns the host's end.
func attach(t testing.TB, s *Stdio, stream api.Stream) *net.UnixConn {
	t.Helper()
	host, _ := rebind(t, s, stream)
	return host
}

// rebind binds a stream and also returns what the host is told was sent before.
func rebind(t testing.TB, s *Stdio, stream api.Stream) (host *net.UnixConn, sent uint64) {
	t.Helper()
	place, err := s.Reserve(stream)
	if err != nil {
		t.Fatal(err)
	}
	host, guest := socketPair(t)
	place.Attach(guest, nil)
	return host, place.Sent
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func TestOutputUntilLastWriter(t *testing.T) {
	s := newStdio(t, Request{Stdout: true, Stderr: true})
	out, errs := attach(t, s, stdout), attach(t, s, stderr)
	data := strings.Repeat("0123456789", 100_000)
	go func() {
		_, _ = io.WriteString(s.Child().Stdout, data)
		_, _ = io.WriteString(s.Child().Stderr, "oops")
		s.Child().Close()
	}()
	if got := readAll(t, out); got != data {
		t.Errorf("stdout: %d bytes, want %d", len(got), len(data))
	}
	if got := readAll(t, errs); got != "oops" {
		t.Errorf("stderr: %q", got)
	}
	if o, e := s.Totals(); o != uint64(len(data)) || e != 4 {
		t.Errorf("totals %d, %d", o, e)
	}
}

// The agent keeps no pipe that is at its end: an engine may never delete an exec.
func TestEndedPipesAreClosed(t *testing.T) {
	s := newStdio(t, Request{Stdout: true, Stderr: true})
	out, errs := attach(t, s, stdout), attach(t, s, stderr)
	_, _ = io.WriteString(s.Child().Stdout, "text")
	s.Child().Close()
	if got := readAll(t, out) + readAll(t, errs); got != "text" {
		t.Errorf("output %q", got)
	}
	for name, o := range map[string]*output{"stdout": s.stdout, "stderr": s.stderr} {
		o.run.wait()
		for _, file := range []*os.File{o.file.file, o.file.set} {
			if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: %s is open, %v", name, file.Name(), err)
			}
		}
	}
	if o, e := s.Totals(); o != 4 || e != 0 {
		t.Errorf("totals %d, %d", o, e)
	}
	host, sent := rebind(t, s, stdout)
	if got := readAll(t, host); got != "" || sent != 4 {
		t.Errorf("a later connection has %q after %d bytes", got, sent)
	}
}

// A process that fills its pipe gets a larger one, and one that does not keeps it.
func TestPipeGrows(t *testing.T) {
	s := newStdio(t, Request{Stdout: true, Stderr: true})
	out, errs := attach(t, s, stdout), attach(t, s, stderr)
	const size = 16 << 20
	go func() {
		_, _ = s.Child().Stderr.WriteString("few")
		_, _ = s.Child().Stdout.Write(make([]byte, size))
	}()
	if _, err := io.ReadFull(errs, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[int]*os.File{maxBlock * pipeBlocks: s.Child().Stdout, 64 << 10: s.Child().Stderr} {
		if got, err := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0); got != want || err != nil {
			t.Errorf("%s has %d bytes, %v, want %d", f.Name(), got, err, want)
		}
	}
}

func TestTotalsBeforeTheHostReads(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	for range 3 {
		_, _ = io.WriteString(s.Child().Stdout, "0123456789")
	}
	if o, e := s.Totals(); o != 30 || e != 0 {
		t.Errorf("totals %d, %d, want 30, 0", o, e)
	}
	out := attach(t, s, stdout)
	_, _ = io.WriteString(s.Child().Stdout, "more")
	s.Child().Close()
	if got := readAll(t, out); len(got) != 34 {
		t.Errorf("%q", got)
	}
}

func TestBackpressureAndClose(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	host := attach(t, s, stdout)
	written := make(chan int, 1)
	go func() {
		n, _ := s.Child().Stdout.Write(make([]byte, 64<<20))
		written <- n
	}()
	if _, err := io.ReadFull(host, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	select {
	case n := <-written:
		t.Fatalf("%d bytes were sent without a reader", n)
	case <-time.After(100 * time.Millisecond):
	}
	s.Close() // The process then gets EPIPE, as from any closed pipe.
	if n := <-written; n == 64<<20 {
		t.Error("everything was written")
	}
}

// "yes | head": a process whose output is no longer read gets SIGPIPE, and the
// end of one stream does not end the other.
func TestLostReaderBreaksThePipe(t *testing.T) {
	s := newStdio(t, Request{Stdout: true, Stderr: true})
	host, errs := attach(t, s, stdout), attach(t, s, stderr)
	_ = host.Close()
	const size = 4 << 20
	if n, err := s.Child().Stdout.Write(make([]byte, size)); n == size || !errors.Is(err, unix.EPIPE) {
		t.Fatalf("the process wrote %d, %v; want EPIPE", n, err)
	}
	if o, _ := s.Totals(); o == 0 || o >= size {
		t.Errorf("total %d, want what was taken of %d", o, size)
	}
	_, _ = io.WriteString(s.Child().Stderr, "oops")
	s.Child().Close()
	if got := readAll(t, errs); got != "oops" {
		t.Errorf("stderr: %q", got)
	}
}

func TestStdinHalfClose(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	host := attach(t, s, stdin)
	data := bytes.Repeat([]byte("abc"), 200_000)
	go func() {
		_, _ = host.Write(data)
		_ = host.CloseWrite()
	}()
	if got := readAll(t, s.Child().Stdin); got != string(data) {
		t.Errorf("%d bytes, want %d", len(got), len(data))
	}
}

func TestCloseStdin(t *testing.T) {
	t.Run("unbound", func(t *testing.T) {
		s := newStdio(t, Request{Stdin: true})
		s.CloseStdin()
		if got := readAll(t, s.Child().Stdin); got != "" {
			t.Errorf("%q", got)
		}
	})
	t.Run("before the process reads", func(t *testing.T) {
		s := newStdio(t, Request{Stdin: true})
		host := attach(t, s, stdin)
		data := strings.Repeat("x", 150<<10) // More than a pipe holds.
		_, _ = io.WriteString(host, data)
		s.CloseStdin()
		time.Sleep(3 * lastInput)
		if got := readAll(t, s.Child().Stdin); got != data {
			t.Errorf("%d bytes, want %d", len(got), len(data))
		}
	})
	t.Run("after what has arrived", func(t *testing.T) {
		s := newStdio(t, Request{Stdin: true})
		host := attach(t, s, stdin)
		_, _ = host.Write([]byte("last words"))
		s.CloseStdin()
		if got := readAll(t, s.Child().Stdin); got != "last words" {
			t.Errorf("%q", got)
		}
	})
}

func TestNotAskedFor(t *testing.T) {
	s := newStdio(t, Request{Stdin: true})
	if info, err := s.Child().Stdout.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("stdout is not the null device: %v, %v", info, err)
	}
	tests := []struct {
		stream api.Stream
		is     func(error) bool
	}{
		{stdout, errdefs.IsFailedPrecondition},
		{api.Stream_STREAM_UNSPECIFIED, errdefs.IsFailedPrecondition},
		{api.Stream(99), errdefs.IsFailedPrecondition},
		{stdin, func(err error) bool { return err == nil }},
		{stdin, errdefs.IsAlreadyExists},
	}
	for _, test := range tests {
		if _, err := s.Reserve(test.stream); !test.is(err) {
			t.Errorf("%v: %v", test.stream, err)
		}
	}
	s.Close()
	if _, err := s.Reserve(stdin); !errdefs.IsNotFound(err) {
		t.Errorf("closed: %v", err)
	}
}

func TestUnbound(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stderr: true})
	if got := s.Unbound(); len(got) != 2 || got[0] != stdin || got[1] != stderr {
		t.Errorf("%v", got)
	}
	attach(t, s, stdin)
	attach(t, s, stderr)
	if got := s.Unbound(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestAttachAfterClose(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	place, err := s.Reserve(stdout)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	host, guest := socketPair(t)
	place.Attach(guest, nil)
	if _, err := host.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection lives: %v", err)
	}
}
