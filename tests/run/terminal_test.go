package run

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"
)

// wipe is how a terminal clears the rest of a line.
const wipe = "\x1b[K"

// A container's terminal is the caller's: its size, what is typed, and a change
// of size; the exit code passes through.
func TestTerminal(t *testing.T) {
	ctx := testContext(t)
	master, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	resize := func(width, height uint16) {
		t.Helper()
		if err := master.Resize(console.WinSize{Width: width, Height: height}); err != nil {
			t.Fatal(err)
		}
	}
	resize(91, 33)
	cmd := command(ctx, "run", "-it", "--rm", "--network", "none", "--name", newName(t), bed.images.layout, "sh", "-c",
		`tty; stty size; trap 'stty size; exit 7' WINCH; echo up; while read line; do echo "got $line"; done`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := errors.Join(cmd.Start(), slave.Close()); err != nil {
		t.Fatal(err) // the terminal's last user is gone with the command
	}
	r := bufio.NewReader(master)
	for _, want := range []string{"/dev/", "33 91", "up"} {
		line := readLine(t, r)
		if wiped := strings.LastIndex(line, wipe); wiped >= 0 { // the image's progress bar
			line = line[wiped+len(wipe):]
		}
		if !strings.HasPrefix(line, want) {
			t.Errorf("line %q, want %q", line, want)
		}
	}
	if _, err := master.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hello", "got hello"} { // the guest's terminal echoes
		if line := readLine(t, r); line != want {
			t.Errorf("line %q, want %q", line, want)
		}
	}
	// The kernel sends SIGWINCH only for a controlling terminal, which this is
	// not.
	resize(100, 40)
	if err := cmd.Process.Signal(unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	// The shell runs its trap when its read has returned.
	if _, err := master.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	var said []string
	for len(said) < 4 {
		line := readLine(t, r)
		said = append(said, line)
		if line == "40 100" {
			break
		}
	}
	if said[len(said)-1] != "40 100" {
		t.Errorf("after the resize: %q", said)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("ended with %v, want exit code 7", err)
	}
}
