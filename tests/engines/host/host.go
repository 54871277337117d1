package host

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// envRole is the role of this process among the three; unset in the outer one.
// envName is the host's name.
const (
	envRole = "KATABOX_PRIVATE_HOST"
	envName = "KATABOX_PRIVATE_HOST_NAME"
)

const (
	roleInit  = "init"
	roleSuite = "suite"
)

// Run calls suite on a private host, and then after on the machine when no
// process of that host is left. It is called from TestMain and returns the code
// for os.Exit: the suite's, or 1 for an error. It needs root.
func Run(suite func() int, after func() error) int {
	switch os.Getenv(envRole) {
	case roleSuite:
		return suite()
	case roleInit:
		return report("prepare a private host", runInit)
	default:
		return report("run a private host", func() (int, error) { return runOuter(after) })
	}
}

// RunTests is Run for a suite that prepares its host and then runs its tests.
func RunTests(m *testing.M, prepare, after func() error) int {
	return Run(func() int {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "prepare the suite:", err)
			return 1
		}
		return m.Run()
	}, after)
}

// Name returns the host's unique name, of letters and digits, the same in the
// suite and after it: for resources that are shared with the machine.
func Name() string { return os.Getenv(envName) }

func runOuter(after func() error) (int, error) {
	word := make([]byte, 4)
	_, _ = rand.Read(word) // never fails (crypto/rand)
	if err := os.Setenv(envName, "kbe"+hex.EncodeToString(word)); err != nil {
		return 1, fmt.Errorf("name the host: %w", err)
	}
	code, err := again(roleInit, namespaces)
	return code, errors.Join(err, after())
}

// namespaces are the host's private namespaces. Cgroups are shared: a cgroup
// namespace would require remounting version 1's hierarchies.
const namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC

func report(what string, run func() (int, error)) int {
	code, err := run()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	return code
}

// again runs this program in a role and returns its exit code.
func again(role string, flags uintptr) (int, error) {
	// PDEATHSIG fires when the thread that forked ends (prctl(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envRole+"="+role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	err := runUntilSignal(cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // -1: killed by a signal
	}
	return 0, err
}

// runUntilSignal runs a command, and kills it if this process is asked to end:
// the caller can then remove what is the machine's.
func runUntilSignal(cmd *exec.Cmd) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-signals:
			_ = cmd.Process.Kill() // fails only when it has ended
		case <-ended:
		}
	}()
	return cmd.Wait()
}

// runInit makes the host, starts the suite, and reaps what is left to PID 1
// until the suite ends.
func runInit() (int, error) {
	if err := makeHost(); err != nil {
		return 1, err
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 1, fmt.Errorf("find the test binary: %w", err)
	}
	if err := os.Setenv(envRole, roleSuite); err != nil {
		return 1, fmt.Errorf("name the suite's role: %w", err)
	}
	suite, err := os.StartProcess(program, os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		// Its own group, by which the harness recognizes its children.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 1, fmt.Errorf("start the suite: %w", err)
	}
	return reapUntil(suite.Pid)
}

// reapUntil reaps every child until the one with pid has ended, and returns its
// exit code, or 128 and the signal's number.
func reapUntil(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		child, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 1, fmt.Errorf("wait for the suite: %w", err)
		case child == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case child == pid:
			return status.ExitStatus(), nil
		}
	}
}
