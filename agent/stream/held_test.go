package stream

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reopen opens the process's end of the terminal again, as a process of the container's
// opens /dev/console.
func reopen(t *testing.T, name string) *os.File {
	t.Helper()
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return slave
}

// A terminal that all processes have closed for a moment goes on when one has it open
// again, with a reader and without one, and over Park. Its output ends after its process.
func TestTerminalIsClosedForAMoment(t *testing.T) {
	for _, asked := range []bool{true, false} {
		t.Run(fmt.Sprintf("asked %t", asked), func(t *testing.T) {
			s := newStdio(t, Request{Terminal: true, Stdout: asked})
			read := func() string { return "" }
			if asked {
				out := attach(t, s, stdout)
				read = func() string { return readAll(t, out) }
			}
			master, slave := openPty(t)
			name := slave.Name()
			if err := s.SetConsole(master); err != nil {
				t.Fatal(err)
			}
			const size = 1 << 20 // more than a terminal holds
			wrote := make(chan error, 1)
			go func() {
				for range 2 {
					_ = slave.Close()
					time.Sleep(50 * time.Millisecond) // for the end to be noticed
					slave = reopen(t, name)
					if _, err := io.WriteString(slave, strings.Repeat("x", size/2)); err != nil {
						wrote <- err
						return
					}
				}
				_ = slave.Close()
				wrote <- nil
			}()
			got := make(chan string, 1)
			go func() { got <- read() }()
			select {
			case err := <-wrote:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the process is stuck")
			}
			if asked {
				select {
				case text := <-got:
					t.Fatalf("the output ends after %d bytes, before the process", len(text))
				case <-time.After(50 * time.Millisecond):
				}
			}
			s.Ended()
			if text := <-got; asked && len(text) != size {
				t.Errorf("%d bytes, want %d", len(text), size)
			}
			if o, _ := s.Totals(); asked && o != size {
				t.Errorf("total %d, want %d", o, size)
			}
		})
	}
}

// A terminal that is parked while no process has it open is bound again.
func TestParkClosedTerminal(t *testing.T) {
	s := newStdio(t, Request{Terminal: true, Stdout: true})
	attach(t, s, stdout)
	master, slave := openPty(t)
	if err := s.SetConsole(master); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	time.Sleep(20 * time.Millisecond) // for the end to be noticed
	park(t, s, 0)
	slave = reopen(t, slave.Name())
	_, _ = io.WriteString(slave, "again")
	_ = slave.Close()
	out, _ := rebind(t, s, stdout)
	s.Ended()
	if got := readAll(t, out); got != "again" {
		t.Errorf("%q", got)
	}
}

// Close, and a terminal that comes after it, leave none of its ends open.
func TestHeldTerminalIsClosed(t *testing.T) {
	s := newStdio(t, Request{Terminal: true, Stdout: true})
	master, slave := openPty(t)
	if err := s.SetConsole(master); err != nil {
		t.Fatal(err)
	}
	held := s.held
	flags, err := unix.FcntlInt(held.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v: other processes inherit it", flags, err)
	}
	s.Close()
	if _, err := held.Stat(); err == nil {
		t.Error("it is open")
	}
	if _, err := slave.WriteString("x"); err == nil {
		t.Error("the terminal goes on")
	}
}
