package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

	"github.com/katabox/katabox/virtcontainers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is a directory with the three FIFOs of a process.
type engine struct {
	t     *testing.T
	paths Paths
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	dir := t.TempDir()
	e := &engine{t: t, paths: Paths{
		Stdin: filepath.Join(dir, "in"), Stdout: filepath.Join(dir, "out"), Stderr: filepath.Join(dir, "err"),
	}}
	for _, path := range []string{e.paths.Stdin, e.paths.Stdout, e.paths.Stderr} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func (e *engine) open(path string, flag int) *os.File {
	e.t.Helper()
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { f.Close() })
	return f
}

// pair is a connected pair of UNIX sockets: the IO's end and the guest's.
func pair(t *testing.T) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

// guestEnds are the process's ends in the guest.
type guestEnds struct{ stdin, stdout, stderr *net.UnixConn }

func connect(t *testing.T, i *IO) guestEnds {
	t.Helper()
	var (
		conns virtcontainers.Conns
		g     guestEnds
	)
	in, stdin := pair(t)
	out, stdout := pair(t)
	errs, stderr := pair(t)
	g.stdin, g.stdout, g.stderr = stdin, stdout, stderr
	conns.Stdin, conns.Stdout, conns.Stderr = in, out, errs
	if err := i.Connect(conns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return g
}

func newIO(t *testing.T, paths Paths) *IO {
	t.Helper()
	i, err := New(paths)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestOutputReachesEngine(t *testing.T) {
	e := newEngine(t)
	stdout, stderr := e.open(e.paths.Stdout, os.O_RDONLY), e.open(e.paths.Stderr, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	go func() {
		_, _ = g.stdout.Write(want)
		_, _ = g.stderr.Write([]byte("oops"))
		g.stdout.Close()
		g.stderr.Close()
	}()
	got, err := io.ReadAll(stdout)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("stdout: %d bytes, %v; want %d", len(got), err, len(want))
	}
	if got, err := io.ReadAll(stderr); err != nil || string(got) != "oops" {
		t.Errorf("stderr: %q, %v", got, err)
	}
}

// A reader that disconnects after some output gets the rest when it comes back.
func TestReaderComesBack(t *testing.T) {
	e := newEngine(t)
	first := e.open(e.paths.Stdout, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	if _, err := g.stdout.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(first, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if _, err := g.stdout.Write([]byte("two")); err != nil {
		t.Fatal(err)
	}
	g.stdout.Close()
	second := e.open(e.paths.Stdout, os.O_RDONLY)
	got := make([]byte, 3)
	if _, err := io.ReadFull(second, got); err != nil || string(got) != "two" {
		t.Errorf("the second reader got %q, %v", got, err)
	}
}

// Before the start the engine's close is the end.
func TestStdinHalfClose(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	g := connect(t, i)
	// The IO reads before there is a writer: that is not the end of file.
	w := e.open(e.paths.Stdin, os.O_WRONLY)
	if _, err := w.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	w.Close()
	got, err := io.ReadAll(g.stdin)
	if err != nil || string(got) != "hello" {
		t.Errorf("the process read %q, %v", got, err)
	}
	if _, err := g.stdout.Write([]byte("still here")); err != nil {
		t.Errorf("output after the end of input: %v", err)
	}
}

// The engine ends, and comes back: the input of a process that was started
// continues, and only CloseStdin is its end. The FIFO's name may be gone.
func TestStdinOutlivesItsEngine(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	g := connect(t, i)
	first := e.open(e.paths.Stdin, os.O_WRONLY)
	second := e.open(e.paths.Stdin, os.O_RDWR) // to have it when the name is gone
	reopen := fmt.Sprintf("/proc/self/fd/%d", second.Fd())
	if err := os.Remove(e.paths.Stdin); err != nil {
		t.Fatal(err)
	}
	if err := i.HoldStdin(); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*os.File{first, e.open(reopen, os.O_WRONLY)} {
		if w != first {
			second.Close()
		}
		if _, err := w.WriteString("typed"); err != nil {
			t.Fatal(err)
		}
		w.Close()
		got := make([]byte, 5)
		_ = g.stdin.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(g.stdin, got); err != nil || string(got) != "typed" {
			t.Fatalf("the process read %q, %v", got, err)
		}
	}
	_ = g.stdin.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := g.stdin.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the input ended with its engine: %v", err)
	}
	i.CloseStdin()
	_ = g.stdin.SetReadDeadline(time.Now().Add(20 * time.Second))
	if rest, err := io.ReadAll(g.stdin); err != nil || len(rest) > 0 {
		t.Errorf("after CloseStdin the process read %q, %v", rest, err)
	}
}

// Input that ended before the start has ended: a client may have had no chance to
// call CloseIO. The ends of iSulad and kata-runtime are opened once.
func TestStdinThatIsNotHeld(t *testing.T) {
	for _, stay := range []bool{false, true} {
		e := newEngine(t)
		e.paths.ReadersStay = stay
		e.open(e.paths.Stdout, os.O_RDONLY)
		e.open(e.paths.Stderr, os.O_RDONLY)
		i := newIO(t, e.paths)
		w := e.open(e.paths.Stdin, os.O_RDWR)
		g := connect(t, i)
		if _, err := w.WriteString("all"); err != nil {
			t.Fatal(err)
		}
		if !stay {
			w.Close()
		}
		if err := i.HoldStdin(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		_ = g.stdin.SetReadDeadline(time.Now().Add(20 * time.Second))
		if got, err := io.ReadAll(g.stdin); err != nil || string(got) != "all" {
			t.Errorf("ReadersStay=%v: the process read %q, %v", stay, got, err)
		}
	}
}

// One client leaves a terminal and another attaches: its input arrives too, and
// only CloseStdin is the end.
func TestTerminalInputOfTwoClients(t *testing.T) {
	e := newEngine(t)
	e.paths.Terminal = true
	i := newIO(t, e.paths)
	g := connect(t, i)
	for _, typed := range []string{"first", "second"} {
		w := e.open(e.paths.Stdin, os.O_WRONLY)
		if _, err := w.WriteString(typed); err != nil {
			t.Fatal(err)
		}
		w.Close()
		got := make([]byte, len(typed))
		if _, err := io.ReadFull(g.stdin, got); err != nil || string(got) != typed {
			t.Fatalf("the terminal read %q, %v, want %q", got, err, typed)
		}
	}
	i.CloseStdin()
	if rest, err := io.ReadAll(g.stdin); err != nil || len(rest) > 0 {
		t.Errorf("after CloseStdin the terminal read %q, %v", rest, err)
	}
}

// CloseStdin ends the input even if the writer holds the FIFO open, and loses
// nothing that was written before.
func TestCloseStdin(t *testing.T) {
	for _, early := range []bool{true, false} {
		e := newEngine(t)
		i := newIO(t, e.paths)
		reader := e.open(e.paths.Stdin, os.O_RDWR)
		want := strings.Repeat("x", 1000)
		if _, err := reader.Write([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if early {
			i.CloseStdin()
		}
		g := connect(t, i)
		if !early {
			i.CloseStdin()
			i.CloseStdin()
		}
		if got, err := io.ReadAll(g.stdin); err != nil || string(got) != want {
			t.Errorf("early=%v: the process read %d bytes, %v", early, len(got), err)
		}
	}
}

func TestDrainWaitsForTheBytes(t *testing.T) {
	e := newEngine(t)
	stdout := e.open(e.paths.Stdout, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	drained := make(chan struct{})
	go func() {
		i.Drain(context.Background(), 6, 0)
		close(drained)
	}()
	if _, err := g.stdout.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-drained:
		t.Fatal("drained after 3 of 6 bytes")
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := g.stdout.Write([]byte("def")); err != nil {
		t.Fatal(err)
	}
	<-drained // the stream is still open
	got := make([]byte, 6)
	if _, err := io.ReadFull(stdout, got); err != nil || string(got) != "abcdef" {
		t.Errorf("the engine got %q, %v", got, err)
	}
}

func TestDrainEnds(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	g := connect(t, i)
	go func() { // without a reader of the engine's end
		for {
			if _, err := g.stdout.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	i.Drain(context.Background(), 1<<40, 0) // more than is read
	g.stdout.Close()
	g.stderr.Close()
	i.Close()
	i.Drain(context.Background(), 1<<40, 1<<40) // the streams have ended
}

// The outputs are closed together, when both have ended, and input continues.
func TestOutputsCloseTogether(t *testing.T) {
	e := newEngine(t)
	stdout, stderr := e.open(e.paths.Stdout, os.O_RDONLY), e.open(e.paths.Stderr, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	g.stderr.Close()
	if err := stderr.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := stderr.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("stderr ended before stdout: %v", err)
	}
	g.stdout.Close()
	if _, err := io.ReadAll(stdout); err != nil {
		t.Error(err)
	}
	w := e.open(e.paths.Stdin, os.O_WRONLY)
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(g.stdin, make([]byte, 1)); err != nil {
		t.Errorf("input after the end of output: %v", err)
	}
}

func TestBadPaths(t *testing.T) {
	if _, err := New(Paths{Stdout: "ftp://x/y"}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("got %v", err)
	}
	i := newIO(t, Paths{Stdout: "/no/such/fifo"})
	in, _ := pair(t)
	if err := i.Connect(virtcontainers.Conns{Stdout: in}); err == nil || !strings.Contains(err.Error(), "/no/such/fifo") {
		t.Errorf("got %v, want an error that names the FIFO", err)
	}
}

// The FIFO of much output takes more at a time than that of little.
func TestFIFOGrowsWithTheOutput(t *testing.T) {
	e := newEngine(t)
	stdout, stderr := e.open(e.paths.Stdout, os.O_RDONLY), e.open(e.paths.Stderr, os.O_RDONLY)
	if _, err := unix.FcntlInt(stderr.Fd(), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		t.Skip(err)
	}
	size := func(f *os.File) int {
		n, err := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	little := size(stdout)
	g := connect(t, newIO(t, e.paths))
	for _, out := range []struct {
		process io.WriteCloser
		fifo    *os.File
		want    int
	}{{g.stdout, stdout, maxBuffer}, {g.stderr, stderr, 1 << 20}} {
		go func() {
			_, _ = out.process.Write(make([]byte, 8<<20))
			_ = out.process.Close()
		}()
		if _, err := io.CopyN(io.Discard, out.fifo, 8<<20); err != nil {
			t.Fatal(err)
		}
		if got := size(out.fifo); got != out.want {
			t.Errorf("the FIFO takes %d bytes, want %d (%d before)", got, out.want, little)
		}
	}
}
