package stdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

const patience = 20 * time.Second

// park parks an IO and checks the answer.
func park(t *testing.T, i *IO, sent uint64, bound bool) {
	t.Helper()
	gotSent, gotBound, err := i.Park(t.Context())
	if err != nil || gotSent != sent || gotBound != bound {
		t.Fatalf("Park: %d bytes of input, bound %v, %v; want %d, %v", gotSent, gotBound, err, sent, bound)
	}
}

// rebind ends the guest's old connections, and gives the IO new ones.
func rebind(t *testing.T, i *IO, old guestEnds) guestEnds {
	t.Helper()
	in, stdin := pair(t)
	out, stdout := pair(t)
	errs, stderr := pair(t)
	for _, conn := range []*net.UnixConn{old.stdin, old.stdout, old.stderr} {
		_ = conn.Close()
	}
	if err := i.Rebind(virtcontainers.Conns{Stdin: in, Stdout: out, Stderr: errs}); err != nil {
		t.Fatal(err)
	}
	return guestEnds{stdin, stdout, stderr}
}

// isOpen checks that a read of f finds neither data nor the end.
func isOpen(t *testing.T, what string, f interface {
	io.Reader
	SetReadDeadline(at time.Time) error
}) {
	t.Helper()
	_ = f.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: read %d bytes, %v", what, n, err)
	}
	_ = f.SetReadDeadline(time.Now().Add(patience))
}

func put(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

func wantRead(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got[:n], err, want)
	}
}

// The output of several connections is one stream: it ends with the last, and its
// bytes are counted over all.
func TestOutputOfSeveralConnections(t *testing.T) {
	e := newEngine(t)
	stdout := e.open(e.paths.Stdout, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	want := ""
	for _, text := range []string{"one", "two", "three"} {
		put(t, g.stdout, text)
		park(t, i, 0, true)
		put(t, g.stdout, "+"+text) // what the guest sends until it parks
		g = rebind(t, i, g)
		want += text + "+" + text
		wantRead(t, stdout, text+"+"+text)
		isOpen(t, "the engine's end", stdout)
	}
	put(t, g.stdout, "last")
	i.Drain(t.Context(), uint64(len(want)+len("last")), 0)
	wantRead(t, stdout, "last")
	g.stdout.Close()
	g.stderr.Close()
	if _, err := io.ReadAll(stdout); err != nil {
		t.Error(err)
	}
}

// What an engine has not read of the old connections comes before the new one's.
func TestOutputStaysInOrder(t *testing.T) {
	e := newEngine(t)
	stdout := e.open(e.paths.Stdout, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	if _, err := unix.FcntlInt(stdout.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	_ = stdout.SetReadDeadline(time.Now().Add(patience))
	var want bytes.Buffer
	for c := byte('a'); c < 'd'; c++ {
		part := bytes.Repeat([]byte{c}, 20_000) // more than the FIFO takes
		want.Write(part)
		put(t, g.stdout, string(part))
		park(t, i, 0, true)
		g = rebind(t, i, g)
	}
	g.stdout.Close()
	g.stderr.Close()
	got, err := io.ReadAll(stdout)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the engine got %d bytes, %v, want %d in their order", len(got), err, want.Len())
	}
}

// An engine that does not read cannot have any number of connections kept; once it
// has read, the output is parked again.
func TestOutputThatIsNotRead(t *testing.T) {
	e := newEngine(t)
	stdout := e.open(e.paths.Stdout, os.O_RDONLY)
	e.open(e.paths.Stderr, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	if _, err := unix.FcntlInt(stdout.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	_ = unix.SetNonblock(int(stdout.Fd()), true)      // Fd has undone it
	part := string(bytes.Repeat([]byte("x"), 20_000)) // more than the FIFO takes
	want := 0
	for range mostConns - 1 {
		put(t, g.stdout, part)
		want += len(part)
		park(t, i, 0, true)
		g = rebind(t, i, g)
	}
	for range 2 {
		if _, _, err := i.Park(t.Context()); !errdefs.IsFailedPrecondition(err) {
			t.Fatalf("Park: %v", err)
		}
	}
	put(t, g.stdout, "last") // nothing was parked
	wantRead(t, stdout, string(bytes.Repeat([]byte("x"), want))+"last")
	park(t, i, 0, true)
	rebind(t, i, g)
}

// An output has no other end while it is parked than that it is not rebound; one
// that had ended before does not come back.
func TestOutputEndsAfterPark(t *testing.T) {
	e := newEngine(t)
	stdout, stderr := e.open(e.paths.Stdout, os.O_RDONLY), e.open(e.paths.Stderr, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	g.stderr.Close()
	i.err.await(t.Context(), 1, false) // ends with the stream
	park(t, i, 0, true)
	g.stdout.Close()
	isOpen(t, "stdout", stdout)
	late, other := pair(t)
	if err := i.Rebind(virtcontainers.Conns{Stderr: late}); err != nil {
		t.Fatal(err)
	}
	_ = other.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(other); err != nil {
		t.Errorf("the connection of a stream that had ended: %v", err)
	}
	for _, f := range []*os.File{stdout, stderr} {
		_ = f.SetReadDeadline(time.Now().Add(patience))
		if got, err := io.ReadAll(f); err != nil || len(got) > 0 {
			t.Errorf("%s: %q, %v", f.Name(), got, err)
		}
	}
}

// A reader that is gone breaks the process's pipe, before the park or after it.
func TestOutputBreaksAfterPark(t *testing.T) {
	e := newEngine(t)
	e.paths.ReadersStay, e.paths.PipesBreak = true, true
	stdout := e.open(e.paths.Stdout, os.O_RDONLY)
	e.open(e.paths.Stderr, os.O_RDONLY)
	i := newIO(t, e.paths)
	g := connect(t, i)
	stdout.Close()
	put(t, g.stdout, "x")
	i.out.await(t.Context(), 1, false)
	park(t, i, 0, true)
	g = rebind(t, i, g)
	_ = g.stdout.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(g.stdout); err != nil {
		t.Errorf("the new connection: %v", err)
	}
}

// Input that comes while it is parked waits in the FIFO, and all of it is counted.
func TestInputOfSeveralConnections(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	g := connect(t, i)
	w := e.open(e.paths.Stdin, os.O_WRONLY)
	sent := uint64(0)
	for range 3 {
		put(t, w, "before")
		wantRead(t, g.stdin, "before")
		park(t, i, sent+6, true)
		put(t, w, "meanwhile")
		isOpen(t, "the old connection", g.stdin)
		g = rebind(t, i, g)
		wantRead(t, g.stdin, "meanwhile")
		sent += 6 + 9
	}
	w.Close()
	_ = g.stdin.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(g.stdin); err != nil || len(got) > 0 {
		t.Errorf("at its end the process read %q, %v", got, err)
	}
	<-i.in.stopped
	park(t, i, sent, false)
	in, _ := pair(t)
	if err := i.Rebind(virtcontainers.Conns{Stdin: in}); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection of an input that had ended: %v", err)
	}
}

// A process that does not read holds up neither the park nor any byte.
func TestInputThatIsNotTaken(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	g := connect(t, i)
	w := e.open(e.paths.Stdin, os.O_WRONLY)
	want := make([]byte, 4<<20) // more than the FIFO and the sockets hold
	for n := range want {
		want[n] = byte(n >> 8)
	}
	written := make(chan error, 1)
	go func() {
		_, err := w.Write(want)
		written <- errors.Join(err, w.Close())
	}()
	time.Sleep(20 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	sent, bound, err := i.Park(ctx)
	if took := time.Since(begin); err != nil || !bound || took > parkWait {
		t.Fatalf("Park: bound %v, %v after %v", bound, err, took)
	}
	old := make([]byte, sent)
	_ = g.stdin.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(g.stdin, old); err != nil {
		t.Fatal(err)
	}
	isOpen(t, "the old connection after the bytes it was to have", g.stdin)
	g = rebind(t, i, g)
	_ = g.stdin.SetReadDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(g.stdin)
	if err != nil || !bytes.Equal(append(old, rest...), want) {
		t.Errorf("%d and %d bytes, %v: they are not the %d that were written", sent, len(rest), err, len(want))
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// CloseStdin takes effect after Rebind, and loses nothing.
func TestCloseStdinWhileParked(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	g := connect(t, i)
	w := e.open(e.paths.Stdin, os.O_WRONLY)
	park(t, i, 0, true)
	put(t, w, "waiting")
	i.CloseStdin()
	isOpen(t, "the old connection", g.stdin)
	g = rebind(t, i, g)
	_ = g.stdin.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(g.stdin); err != nil || string(got) != "waiting" {
		t.Errorf("the process read %q, %v", got, err)
	}
}

// An input that is not rebound has ended for the engine too.
func TestInputIsNotRebound(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	connect(t, i)
	w := e.open(e.paths.Stdin, os.O_WRONLY)
	park(t, i, 0, true)
	if err := i.Rebind(virtcontainers.Conns{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("x"); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the engine wrote: %v, want EPIPE", err)
	}
}

// The totals of a process that was restored count from its creation.
func TestTotalsOfEarlierConnections(t *testing.T) {
	e := newEngine(t)
	stdout := e.open(e.paths.Stdout, os.O_RDONLY)
	i := newIO(t, e.paths)
	in, stdin := pair(t)
	out, guestOut := pair(t)
	conns := virtcontainers.Conns{Stdin: in, Stdout: out, StdinSent: 50, StdoutSent: 100, StderrSent: 7}
	if err := i.Connect(conns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	i.Drain(t.Context(), 100, 7)
	if passed := i.out.passed; passed != 100 {
		t.Errorf("%d bytes were passed before the first, want 100", passed)
	}
	put(t, guestOut, "abc")
	wantRead(t, stdout, "abc")
	begin := time.Now()
	i.Drain(t.Context(), 103, 0)
	if took := time.Since(begin); took >= stalled {
		t.Errorf("Drain took %v", took)
	}
	put(t, e.open(e.paths.Stdin, os.O_WRONLY), "in")
	wantRead(t, stdin, "in")
	park(t, i, 52, true)
}

// Calls in a wrong order fail, and leave no connection open.
func TestParkInDisorder(t *testing.T) {
	e := newEngine(t)
	i := newIO(t, e.paths)
	refused := func(what string) {
		t.Helper()
		conn, other := pair(t)
		if err := i.Rebind(virtcontainers.Conns{Stdin: conn}); !errors.Is(err, errdefs.ErrFailedPrecondition) {
			t.Errorf("Rebind %s: %v", what, err)
		}
		_ = other.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadAll(other); err != nil {
			t.Errorf("Rebind %s: its connection: %v", what, err)
		}
	}
	if _, _, err := i.Park(t.Context()); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("Park before Connect: %v", err)
	}
	connect(t, i)
	refused("without Park")
	park(t, i, 0, true)
	if _, _, err := i.Park(t.Context()); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("a second Park: %v", err)
	}
	i.Close()
	refused("after Close")
}

// Close ends an IO that is parked, and one that is about to be.
func TestCloseEndsParked(t *testing.T) {
	for _, parked := range []bool{true, false} {
		e := newEngine(t)
		stdout := e.open(e.paths.Stdout, os.O_RDONLY)
		i := newIO(t, e.paths)
		g := connect(t, i)
		if parked {
			park(t, i, 0, true)
			i.Close()
		} else {
			w := e.open(e.paths.Stdin, os.O_WRONLY)
			go func() { _, _ = w.Write(make([]byte, 4<<20)) }() // the guest does not read
			time.Sleep(20 * time.Millisecond)
			time.AfterFunc(20*time.Millisecond, i.Close)
			if _, _, err := i.Park(t.Context()); !errors.Is(err, errdefs.ErrFailedPrecondition) {
				t.Errorf("Park: %v", err)
			}
		}
		for _, r := range []interface {
			io.Reader
			SetReadDeadline(at time.Time) error
		}{stdout, g.stdout} {
			_ = r.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadAll(r); err != nil {
				t.Errorf("parked=%v: %v", parked, err)
			}
		}
	}
}
