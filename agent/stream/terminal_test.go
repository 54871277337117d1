package stream

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/pty"
)

// openPty makes a terminal: its master end as libcontainer passes it, and the
// process's end, raw so that bytes arrive unchanged.
func openPty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	mode, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Oflag &^= unix.OPOST
	mode.Lflag &^= unix.ICANON | unix.ECHO
	if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "master"), slave
}

func TestTerminal(t *testing.T) {
	s := newStdio(t, Request{Terminal: true, Stdin: true, Stdout: true, Stderr: true})
	in, out := attach(t, s, stdin), attach(t, s, stdout) // Before there is a terminal.
	if got := s.Unbound(); len(got) != 0 {
		t.Errorf("a terminal lacks %v", got)
	}
	if _, ok := s.StartSize(); ok {
		t.Error("there is a size that was not requested")
	}
	if err := s.Resize(100, 50); err != nil {
		t.Errorf("resize before there is a terminal: %v", err)
	}
	if size, ok := s.StartSize(); !ok || size != (Size{100, 50}) {
		t.Errorf("the size to start with is %v, %t", size, ok)
	}
	master, slave := openPty(t)
	if err := s.SetConsole(master); err != nil {
		t.Fatal(err)
	}
	if err := s.Resize(132, 43); err != nil {
		t.Error(err)
	}
	if size, err := unix.IoctlGetWinsize(int(slave.Fd()), unix.TIOCGWINSZ); err != nil || size.Col != 132 || size.Row != 43 {
		t.Errorf("size %v, %v", size, err)
	}
	_, _ = io.WriteString(in, "ping")
	_ = in.CloseWrite() // Ends nothing: a terminal's input has no end.
	got := make([]byte, 4)
	if _, err := io.ReadFull(slave, got); err != nil || string(got) != "ping" {
		t.Fatalf("input %q, %v", got, err)
	}
	_, _ = io.WriteString(slave, "pong")
	_ = slave.Close()
	s.Ended()
	if got := readAll(t, out); got != "pong" {
		t.Errorf("output %q", got)
	}
	if o, e := s.Totals(); o != 4 || e != 0 {
		t.Errorf("totals %d, %d", o, e)
	}
}

// A size that is requested while the process is being started is the terminal's, but
// not one that it was started with: the process may have changed it.
func TestResizeDuringTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		late Size // requested during the start
		want Size
	}{
		"none": {want: Size{70, 20}},
		"one":  {late: Size{132, 43}, want: Size{132, 43}},
	} {
		s := newStdio(t, Request{Terminal: true, Stdout: true})
		if err := s.Resize(100, 50); err != nil {
			t.Fatal(err)
		}
		s.StartSize()
		master, slave := openPty(t)
		if err := pty.Resize(slave, 20, 70); err != nil { // as the process does
			t.Fatal(err)
		}
		if c.late != (Size{}) {
			if err := s.Resize(c.late.Width, c.late.Height); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SetConsole(master); err != nil {
			t.Fatal(err)
		}
		size, err := unix.IoctlGetWinsize(int(slave.Fd()), unix.TIOCGWINSZ)
		if err != nil || (Size{size.Col, size.Row}) != c.want {
			t.Errorf("%s: size %v, %v, want %v", name, size, err, c.want)
		}
	}
}

func TestTerminalTotalWhileNobodyReads(t *testing.T) {
	s := newStdio(t, Request{Terminal: true, Stdout: true})
	master, slave := openPty(t)
	if err := s.SetConsole(master); err != nil {
		t.Fatal(err)
	}
	const size = 7000 // More than the line discipline's 4 KiB.
	data := strings.Repeat("x", size)
	if n, err := io.WriteString(slave, data); n != size || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if o, _ := s.Totals(); o != size {
		t.Errorf("total %d, want %d", o, size)
	}
	out := attach(t, s, stdout)
	_, _ = io.WriteString(slave, "y")
	if o, _ := s.Totals(); o != size+1 {
		t.Errorf("total %d, want %d", o, size+1)
	}
	// Counted bytes are sent although the terminal stays open.
	got := make([]byte, size+1)
	if _, err := io.ReadFull(out, got); err != nil || string(got) != data+"y" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A pump that waits in the poller must be woken for what Totals has read.
func TestTotalsWakesThePump(t *testing.T) {
	s := newStdio(t, Request{Terminal: true, Stdout: true})
	master, slave := openPty(t)
	if err := s.SetConsole(master); err != nil {
		t.Fatal(err)
	}
	out := attach(t, s, stdout)
	for i := range 200 {
		_, _ = slave.Write([]byte{byte(i)})
		if o, _ := s.Totals(); o != uint64(i+1) {
			t.Fatalf("total %d, want %d", o, i+1)
		}
		got := make([]byte, 1)
		if _, err := io.ReadFull(out, got); err != nil || got[0] != byte(i) {
			t.Fatalf("byte %d: %v, %v", i, got, err)
		}
	}
}

func TestTerminalNobodyAskedFor(t *testing.T) {
	s := newStdio(t, Request{Terminal: true})
	master, slave := openPty(t)
	if err := s.SetConsole(master); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := io.WriteString(slave, strings.Repeat("x", 1<<20))
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the process is stuck")
	}
}

func TestConsoleAfterClose(t *testing.T) {
	s := newStdio(t, Request{Terminal: true, Stdout: true})
	out := attach(t, s, api.Stream_STREAM_STDOUT)
	s.Close()
	if got := readAll(t, out); got != "" {
		t.Errorf("%q", got)
	}
	master, _ := openPty(t)
	if err := s.SetConsole(master); err == nil {
		t.Error("a closed stdio took a terminal")
	}
}

// A terminal's input and output are one file; Park before and after there is one.
func TestParkTerminal(t *testing.T) {
	s := newStdio(t, Request{Terminal: true, Stdin: true, Stdout: true})
	attach(t, s, stdin)
	attach(t, s, stdout)
	park(t, s, 0)
	in, out := attach(t, s, stdin), attach(t, s, stdout)
	master, slave := openPty(t)
	if err := s.SetConsole(master); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	for i := range 20 {
		_, _ = io.WriteString(in, "ping")
		if _, err := io.ReadFull(slave, got); err != nil || string(got) != "ping" {
			t.Fatalf("input %q, %v", got, err)
		}
		_, _ = io.WriteString(slave, "pong")
		if _, err := io.ReadFull(out, got); err != nil || string(got) != "pong" {
			t.Fatalf("output %q, %v", got, err)
		}
		_, _ = io.WriteString(in, "last")
		done := 8 * (i + 1)
		park(t, s, done)
		_, _ = io.WriteString(slave, "more")
		if o, _ := s.Totals(); o != uint64(done) {
			t.Errorf("total %d, want %d", o, done)
		}
		if err := s.Resize(80, 25); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(slave, got); err != nil || string(got) != "last" {
			t.Fatalf("input %q, %v", got, err)
		}
		var sent uint64
		in = attach(t, s, stdin)
		if out, sent = rebind(t, s, stdout); sent != uint64(done-4) {
			t.Errorf("sent %d, want %d", sent, done-4)
		}
		if _, err := io.ReadFull(out, got); err != nil || string(got) != "more" {
			t.Fatalf("output %q, %v", got, err)
		}
	}
}

// A terminal whose reader was lost drops its output, Park or not, until there is
// another.
func TestTerminalGetsAnotherReader(t *testing.T) {
	s := newStdio(t, Request{Terminal: true, Stdout: true})
	master, slave := openPty(t)
	if err := s.SetConsole(master); err != nil {
		t.Fatal(err)
	}
	out := attach(t, s, stdout)
	_ = out.Close()
	total := 0
	waitUntil(t, "output that is dropped", func() bool {
		n, _ := io.WriteString(slave, "lost")
		total += n
		return s.stdout.is(dropping)
	})
	park(t, s, 0)
	n, err := io.WriteString(slave, strings.Repeat("x", 1<<20))
	if total += n; err != nil {
		t.Error(err)
	}
	// The terminal is empty once all is counted as sent.
	waitUntil(t, "an empty terminal", func() bool {
		s.stdout.mu.Lock()
		defer s.stdout.mu.Unlock()
		return s.stdout.sent == uint64(total)
	})
	out, sent := rebind(t, s, stdout)
	if sent != uint64(total) {
		t.Errorf("sent %d of %d", sent, total)
	}
	_, _ = io.WriteString(slave, "kept")
	_ = slave.Close()
	s.Ended()
	if got := readAll(t, out); got != "kept" {
		t.Errorf("%q", got)
	}
}

// Park comes when a new connection was attached and the dropping has not noticed:
// the deadline that Park sets wakes the old run, which must not hide it from the
// new one.
func TestParkWhileTheDroppingEnds(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // The old run does not go on before Park waits.
	for range 20 {
		s := newStdio(t, Request{Terminal: true, Stdout: true})
		master, slave := openPty(t)
		if err := s.SetConsole(master); err != nil {
			t.Fatal(err)
		}
		_ = attach(t, s, stdout).Close()
		waitUntil(t, "output that is dropped", func() bool {
			_, _ = io.WriteString(slave, "lost")
			return s.stdout.is(dropping)
		})
		_, guest := socketPair(t)
		place, err := s.Reserve(stdout)
		if err != nil {
			t.Fatal(err)
		}
		place.Attach(guest, nil)
		parkInTime(t, s)
		if !s.stdout.is(unbound) {
			t.Fatal("it is not parked")
		}
	}
}

// parkInTime fails the test if Park does not return.
func parkInTime(t *testing.T, s *Stdio) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Park(ctx, nil) }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Park hangs")
	}
}
