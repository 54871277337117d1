package contain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// inside runs f on a thread that is confined to a directory.
func inside(t *testing.T, dir string, f func() error) error {
	t.Helper()
	return insideWith(t, dir, nil, f)
}

// insideWith is inside with a peer.
func insideWith(t *testing.T, dir string, peer *Peer, f func() error) error {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to shut threads in needs root")
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root := os.NewFile(uintptr(fd), dir)
	defer root.Close()
	mounts, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer mounts.Close()
	descriptors, err := OpenDescriptors()
	if err != nil {
		t.Fatal(err)
	}
	defer descriptors.Close()
	result := make(chan error, 1)
	ownthread.Go(func() {
		if err := (Jail{Mounts: mounts, Root: root, Descriptors: descriptors, Peer: peer}).Enter(); err != nil {
			result <- fmt.Errorf("enter: %w", err)
			return
		}
		result <- f()
	})
	return <-result
}

// What the thread may do, and that the rest of the process is not confined.
func TestEnter(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := inside(t, dir, func() error {
		fd, err := unix.Open("/mine", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a file of the share: %w", err)
		}
		defer unix.Close(fd)
		again, err := unix.Open(fmt.Sprint(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a descriptor again: %w", err)
		}
		return errors.Join(unix.Close(again), unix.Mknod("/node", unix.S_IFCHR|0o600, 0x103))
	})
	// mknod(2) is not on the list; mknodat(2) is what Go calls for it.
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Errorf("the rest of the process: %v", err)
	}
}

// lookAt opens a file in the working directory with a system call that is on
// the list.
func lookAt(path string) error {
	fd, err := unix.Openat(unix.AT_FDCWD, path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// What the thread may not do.
func TestRefused(t *testing.T) {
	for what, try := range map[string]func() error{
		"a file of the host's":         func() error { return unix.Access("/etc/passwd", 0) },
		"a way out of the descriptors": func() error { return lookAt("../../../etc/passwd") },
		"the process's other files":    func() error { return lookAt("../status") },
		"the kernel's settings":        func() error { return lookAt("../../sys/kernel/core_pattern") },
		"mount":                        func() error { return unix.Mount("none", "/", "tmpfs", 0, "") },
		"unshare":                      func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"socket":                       func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"kill":                         func() error { return unix.Kill(os.Getpid(), 0) },
		"ptrace":                       func() error { return unix.PtraceAttach(os.Getppid()) },
		"chroot":                       func() error { return unix.Chroot("/") },
		"chdir":                        func() error { return unix.Chdir("/") },
		"a capability that it gave up": func() error { return SetEffective(Capabilities | 1<<unix.CAP_SYS_ADMIN) },
		"a program": func() error {
			_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, 0, 0, 0)
			if errno == unix.EFAULT {
				return nil
			}
			return errno
		},
	} {
		if err := inside(t, t.TempDir(), try); err == nil {
			t.Errorf("%s: allowed", what)
		} else if strings.HasPrefix(err.Error(), "enter") {
			t.Fatal(err)
		}
	}
}

// The thread's /proc status shows its restrictions.
func TestStatus(t *testing.T) {
	status, err := os.Open("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	var text string
	err = inside(t, t.TempDir(), func() error {
		fd, err := unix.Openat(int(status.Fd()), fmt.Sprintf("%d/status", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		buf := make([]byte, 8192)
		n, err := unix.Read(fd, buf)
		text = string(buf[:max(n, 0)])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"CapInh:\t0000000000000000", "CapPrm:\t00000000880000db", "CapEff:\t00000000880000db",
		"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
