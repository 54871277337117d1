package command

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/shim/shimtest"
)

func TestMain(m *testing.M) { shimtest.Main(m) }

// enough is more than anything takes.
const enough = 30 * time.Second

// runs returns a function that runs kata-runtime run with the given flags, in a store and
// with guests in memory, and returns the exit code.
func runs(t *testing.T) func(flags ...string) int {
	t.Helper()
	program, dir := shimtest.Prepare(t)
	bin, image := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Symlink(program, filepath.Join(bin, client.ShimName)), os.Mkdir(filepath.Join(image, "tmp"), 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return func(flags ...string) int {
		args := append([]string{"run", "--rm", "--network", "none", "--store", filepath.Join(dir, "store")}, flags...)
		err := runCommand().Run(t.Context(), append(args, "rootfs:"+image, "sh"))
		if exit, ok := errors.AsType[*ExitError](err); ok {
			return exit.Code
		}
		if err != nil {
			t.Error(err)
		}
		return 0
	}
}

// terminal makes this process's standard input a terminal until the test ends.
func terminal(t *testing.T) *os.File {
	t.Helper()
	master, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	tty, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = tty
	t.Cleanup(func() {
		os.Stdin = before
		tty.Close()
	})
	return tty
}

// interrupts reports whether ^C is a signal.
func interrupts(t *testing.T, tty *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Error(err)
		return false
	}
	return state.Lflag&unix.ISIG != 0
}

// until waits until a condition holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(enough); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("never came:", what)
			return
		}
	}
}

func signalSelf(t *testing.T, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(os.Getpid(), sig); err != nil {
		t.Error(err)
	}
}

// heedInterrupts has SIGINT not be ignored from now on, in this process and its children:
// tests that run in the background of a shell begin with that.
func heedInterrupts() {
	if signal.Ignored(unix.SIGINT) {
		signal.Notify(make(chan os.Signal, 1), unix.SIGINT)
	}
}

// ^C ends a run while its machine boots; the terminal is the command's only once there is
// one, and as before when it has ended.
func TestTerminalIsTheCommandsOnceItRuns(t *testing.T) {
	heedInterrupts()
	run, tty := runs(t), terminal(t)
	booting := filepath.Join(t.TempDir(), "booting")
	t.Setenv(shimtest.HangEnv, booting)
	ended := make(chan int, 1)
	go func() { ended <- run("-it") }()
	until(t, "the boot", func() bool {
		_, err := os.Stat(booting)
		return err == nil
	})
	if !interrupts(t, tty) {
		t.Error("^C does nothing while the machine boots")
	}
	signalSelf(t, unix.SIGINT)
	if code := <-ended; code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}

	t.Setenv(shimtest.HangEnv, "")
	go func() { ended <- run("-it") }()
	until(t, "a raw terminal", func() bool { return !interrupts(t, tty) })
	signalSelf(t, unix.SIGTERM)
	if code := <-ended; code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if !interrupts(t, tty) {
		t.Error("the terminal stays raw")
	}
}
