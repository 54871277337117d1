package monitor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/console"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/katabox/katabox/shim/client"
)

// jobEnv makes this program a shell, which has a terminal, or its job in the background.
const jobEnv = "KATABOX_TEST_JOB"

func jobMain(role string) int {
	be := beJob
	if role == "shell" {
		be = beShell
	}
	if err := be(); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

// beShell runs a job in the background until the terminal stops it, and then brings it to
// the foreground.
func beShell() error {
	runtime.LockOSThread()      // the job dies with the thread that has started it
	signal.Ignore(unix.SIGTTOU) // it says something when it is in the background
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), jobEnv+"=job")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil {
		return err
	}
	if !status.Stopped() || status.StopSignal() != unix.SIGTTIN {
		return fmt.Errorf("the job's status is %#x, want that SIGTTIN has stopped it", status)
	}
	if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, cmd.Process.Pid); err != nil {
		return err
	}
	fmt.Println("stopped")
	if err := unix.Kill(-cmd.Process.Pid, unix.SIGCONT); err != nil {
		return err
	}
	return cmd.Wait()
}

// counting is a shim that counts signals.
type counting struct {
	task.TTRPCTaskService
	kills atomic.Int32
}

func (c *counting) Kill(context.Context, *task.KillRequest) (*emptypb.Empty, error) {
	c.kills.Add(1)
	return &emptypb.Empty{}, nil
}

// beJob relays the terminal's input as an exec in the foreground does, and reads a word.
func beJob() error {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	shim := &counting{}
	s := &session{shim: &client.Shim{TTRPCTaskService: shim}, impatience: newImpatience(), job: true}
	s.streams = streams{host: [3]int{0, 1, 2}, guest: [3]int{int(out.Fd()), -1, -1}}
	s.signals = catch(s)
	s.relays = s.streams.relay()
	word := make([]byte, 6)
	if _, err := in.Read(word); err != nil || string(word) != "typed\n" {
		return fmt.Errorf("read %q, %w", word, err)
	}
	if kills := shim.kills.Load(); kills > 0 {
		return fmt.Errorf("%d signals were passed on", kills)
	}
	fmt.Println("done")
	return nil
}

// An exec in the background of a shell is stopped when it reads the terminal, as any job,
// and goes on in the foreground. The signal is not the guest's.
func TestJobInTheBackground(t *testing.T) {
	pty, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	defer pty.Close()
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("/proc/self/exe")
	shell.Env = append(os.Environ(), jobEnv+"=shell")
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = shell.Start()
	_ = slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = shell.Process.Kill() })
	defer timer.Stop()
	var said []string
	for lines := bufio.NewScanner(pty); lines.Scan(); {
		said = append(said, lines.Text())
		if lines.Text() == "stopped" {
			if _, err := pty.Write([]byte("typed\n")); err != nil {
				t.Error(err)
			}
		}
	}
	if err := shell.Wait(); err != nil {
		t.Errorf("the shell has ended: %v; it and its job say %q", err, said)
	}
}

// A monitor passes on what a job does not catch: programs give these signals a meaning,
// and no terminal sends it one.
func TestCaught(t *testing.T) {
	for sig, want := range map[unix.Signal]struct{ job, monitor bool }{
		unix.SIGTERM: {true, true}, unix.SIGTSTP: {true, true}, 34: {true, true},
		unix.SIGTTIN: {false, true}, unix.SIGTTOU: {false, true},
		unix.SIGCONT: {false, false}, unix.SIGKILL: {false, false}, 33: {false, false},
	} {
		if got := slices.Contains(caught(true), os.Signal(sig)); got != want.job {
			t.Errorf("a job catches %v: %t", sig, got)
		}
		if got := slices.Contains(caught(false), os.Signal(sig)); got != want.monitor {
			t.Errorf("a monitor catches %v: %t", sig, got)
		}
	}
}

// A signal that stops a process does not end the wait for the reader of its output.
func TestStopSignalsEndNothing(t *testing.T) {
	for sig, want := range map[unix.Signal]bool{
		unix.SIGSTOP: false, unix.SIGTSTP: false, unix.SIGTTIN: false, unix.SIGTTOU: false, unix.SIGTERM: true, unix.SIGUSR1: true,
	} {
		if got := endsProcess(sig); got != want {
			t.Errorf("%v ends a process: %t", sig, got)
		}
	}
}
