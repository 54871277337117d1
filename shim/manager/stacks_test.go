package manager

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest/files"
)

// aLog makes the log of a bundle and opens it without blocking, for both ends.
func aLog(t *testing.T, bundle string, fifo bool) *os.File {
	t.Helper()
	path := filepath.Join(bundle, logFile)
	err := os.WriteFile(path, nil, 0o600)
	if fifo {
		err = errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// awaitText reads from a log until it has all these words.
func awaitText(t *testing.T, f *os.File, words ...string) {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 64<<10)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		n, _ := unix.Read(int(f.Fd()), buf)
		got.Write(buf[:max(n, 0)])
		missing := ""
		for _, word := range words {
			if !strings.Contains(got.String(), word) {
				missing = word
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log lacks %q:\n%s", missing, got.String())
		}
	}
}

// startDaemonWithLog returns a daemon that serves, and its log.
func startDaemonWithLog(t *testing.T, fifo bool) (pid int, service task.TTRPCTaskService, logged *os.File) {
	t.Helper()
	host := newHost(t)
	asDaemon(t, host.RunDir)
	p := newParams(t, host.RunDir, "pod", nil)
	logged = aLog(t, p.Bundle, fifo)
	address, err := start(p)
	if err != nil {
		t.Fatal(err)
	}
	pid, service = files.ShimPID(t, p.Bundle), connect(t, address)
	if _, err := service.Connect(t.Context(), &task.ConnectRequest{ID: "pod"}); err != nil {
		t.Error(err) // it does not serve yet
	}
	return pid, service, logged
}

// What Go says when a daemon crashes is in the engine's log.
func TestCrashIsLogged(t *testing.T) {
	for name, fifo := range map[string]bool{"FIFO": true, "file": false} {
		t.Run(name, func(t *testing.T) {
			pid, _, logged := startDaemonWithLog(t, fifo)
			if err := unix.Kill(pid, unix.SIGQUIT); err != nil {
				t.Fatal(err)
			}
			awaitText(t, logged, "SIGQUIT", "goroutine ", "manager.Serve(")
			reap(t, pid)
		})
	}
}

// A log that takes no more does not keep a daemon from dying.
func TestCrashWithAFullLog(t *testing.T) {
	pid, _, logged := startDaemonWithLog(t, true)
	for {
		if _, err := unix.Write(int(logged.Fd()), []byte("x")); err != nil {
			break
		}
	}
	if err := unix.Kill(pid, unix.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	reap(t, pid)
}

// SIGUSR1 logs the stacks, and the daemon goes on.
func TestStacksAreLogged(t *testing.T) {
	pid, service, logged := startDaemonWithLog(t, true)
	for range 2 {
		if err := unix.Kill(pid, unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		awaitText(t, logged, "goroutine ", "manager.ServeOn(", "sandbox=pod")
	}
	if _, err := service.Shutdown(t.Context(), &task.ShutdownRequest{ID: "pod"}); err != nil {
		t.Error(err)
	}
	reap(t, pid)
}
