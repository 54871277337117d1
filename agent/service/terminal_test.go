package service

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/pty"
)

// A terminal's output ends with its process, and not when that closes the terminal.
func TestTerminalEndsWithItsProcess(t *testing.T) {
	pod, runtime := testPod(t)
	master, slave := openTerminal(t)
	runtime.console = master
	req := createRequest(t, "c")
	req.Terminal, req.Stdout = true, "yes"
	if _, err := pod.create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	out := bindStdout(t, pod)
	if _, err := pod.start(t.Context(), "c", ""); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	end := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, out)
		end <- err
	}()
	select {
	case err := <-end:
		t.Fatalf("the output ends before the process: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	runtime.last.init.exit(0)
	select {
	case <-end:
	case <-time.After(5 * time.Second):
		t.Error("the output does not end")
	}
	// The output ends just before the exit is known.
	_, init, err := pod.process("c", "")
	if err == nil {
		_, err = init.wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pod.delete(t.Context(), "c", ""); err != nil {
		t.Error(err)
	}
}

// openTerminal makes a terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	if slave, err = pty.OpenSlave(master); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// bindStdout binds the stdout of the container "c", and returns the host's end.
func bindStdout(t *testing.T, pod *Pod) net.Conn {
	t.Helper()
	stdio, err := pod.FindStdio("c", "")
	if err != nil {
		t.Fatal(err)
	}
	place, err := stdio.Reserve(api.Stream_STREAM_STDOUT)
	if err != nil {
		t.Fatal(err)
	}
	host, guest := net.Pipe()
	t.Cleanup(func() { _ = host.Close() })
	place.Attach(guest, nil)
	return host
}
