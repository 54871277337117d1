package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// daemonCaps are the capabilities that a daemon keeps, as capabilities(7)
// numbers them: chown, dac_override, fowner, fsetid, setgid, setuid, mknod and
// setfcap. A container has each of them by default, and uses it on its files.
const daemonCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID |
	1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_MKNOD | 1<<unix.CAP_SETFCAP

// This was once possible: from inside its chroot a daemon opened a file of the
// host for writing, through its descriptor of /proc/self/fd.
func TestDaemonOpensNothingAbove(t *testing.T) {
	const secret = "etc/shadow"
	if _, err := os.Stat("/" + secret); err != nil {
		t.Skip(err)
	}
	if !opensAbove(t, os.Getpid(), openDirectory(t, t.TempDir()), secret) {
		t.Fatal("the test does not find the host's files from one of its directories")
	}
	eachDaemon(t, func(t *testing.T, path string) {
		s := openDaemon(t, path)
		if err := s.Attach(t.Context(), askingVM{t}); err != nil {
			t.Fatal(err)
		}
		for _, fd := range descriptors(t, s.PID()) {
			if opensAbove(t, s.PID(), fd, secret) {
				t.Errorf("descriptor %d leads to /%s", fd, secret)
			}
		}
	})
}

// A daemon has the rights that files of all users need, no others, and no way
// to gain more.
func TestDaemonsRights(t *testing.T) {
	eachDaemon(t, func(t *testing.T, path string) {
		s := openDaemon(t, path)
		if err := s.Attach(t.Context(), askingVM{t}); err != nil {
			t.Fatal(err)
		}
		status := statusOf(t, s.PID())
		for _, name := range []string{"CapPrm", "CapEff"} {
			if caps, err := strconv.ParseUint(status[name], 16, 64); err != nil || caps&^daemonCaps != 0 {
				t.Errorf("%s is %s, want no more than %#x (%v)", name, status[name], daemonCaps, err)
			}
		}
		for name, want := range map[string]string{
			"CapInh": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
		} {
			if status[name] != want {
				t.Errorf("%s is %s, want %s", name, status[name], want)
			}
		}
	})
}

// opensAbove reports whether a descriptor of a process, used as the process
// itself could use it, opens a file of a directory above, for writing.
func opensAbove(t *testing.T, pid, fd int, name string) bool {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	dir, err := unix.PidfdGetfd(pidfd, fd, 0)
	if errors.Is(err, unix.EBADF) {
		return false // closed meanwhile
	}
	if err != nil {
		t.Fatalf("take descriptor %d of process %d: %v", fd, pid, err)
	}
	defer unix.Close(dir)
	for range 16 {
		name = "../" + name
		if opened, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(opened)
			return true
		}
	}
	return false
}

func openDirectory(t *testing.T, path string) int {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return int(dir.Fd())
}

// descriptors lists those of a process.
func descriptors(t *testing.T, pid int) []int {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(paths) < 4 {
		t.Fatalf("descriptors %v, %v", paths, err)
	}
	var fds []int
	for _, path := range paths {
		fd, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// statusOf reads the fields of a process's status (proc_pid_status(5)).
func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.TrimSpace(value)
	}
	return status
}
