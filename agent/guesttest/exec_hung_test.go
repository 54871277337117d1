package guesttest

import (
	"os"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// An exec whose start hangs in libcontainer's stage holds up no other exec. The stage
// reads /etc/passwd for a process without HOME, here a FIFO.
func TestGuestExecBesideHungOne(t *testing.T) {
	m := guestOnly(t)
	inits := map[string]func(*specs.Process){"hung-own": func(*specs.Process) {}, "hung-stage": byStage}
	for id, by := range inits {
		fifo := "/rootfs/tmp/" + id
		if err := unix.Mkfifo(fifo, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(fifo) })
		spec := shell("trap 'exit 7' TERM; while :; do sleep 1000 & wait $!; done")
		spec.Process.Env = append(spec.Process.Env, "HOME=/")
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/etc/passwd", Type: "bind", Source: fifo, Options: []string{"bind"}})
		by(spec.Process)
		m.start(t, id, spec)
		m.besideHung(t, id, fifo)
	}
}

// besideHung starts an exec that hangs until something is written to the FIFO, and
// another beside it.
func (m *machine) besideHung(t *testing.T, id, fifo string) {
	t.Helper()
	hung := process("echo later")
	byStage(hung)
	first := make(chan string, 1)
	go func() { first <- m.startOrError(t, id, "hung", hung) }()
	passwd := awaitReader(t, fifo)
	second := make(chan string, 1)
	go func() {
		p := process("echo next")
		p.Env = append(p.Env, "HOME=/")
		byStage(p)
		second <- m.startOrError(t, id, "next", p)
	}()
	select {
	case got := <-second:
		second <- got
	case <-time.After(callTimeout):
		t.Errorf("%s: an exec waits for the start of another", id)
	}
	select {
	case got := <-first:
		t.Errorf("%s: the other was started without /etc/passwd: %q", id, got)
		first <- got
	default:
	}
	_ = passwd.Close()
	if got := <-first; got != "0later\n" {
		t.Errorf("%s, the hung one: %q", id, got)
	}
	if got := <-second; got != "0next\n" {
		t.Errorf("%s, the other: %q", id, got)
	}
}

// awaitReader opens a FIFO for writing once it is being read (fifo(7)).
func awaitReader(t *testing.T, fifo string) *os.File {
	t.Helper()
	for deadline := time.Now().Add(callTimeout); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			return f
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
