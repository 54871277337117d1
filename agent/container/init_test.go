package container

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { runtime.LockOSThread() } // As the agent's main does.

// startRooted starts a process with its own mount namespace and root, where
// /etc/passwd has a user 5 whose home is /right. With isChrooted it has called
// chroot(2), into a directory without terminals where that home is /wrong.
func startRooted(t *testing.T, isChrooted bool) initProcess {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	run := "sh -c"
	if isChrooted {
		run = "chroot $host sh -c"
	}
	cmd := exec.Command("/bin/sh", "-ec", `
		mount --rbind / $root
		cd $root
		busybox pivot_root . .$old # Debian 14's util-linux has none
		cd /
		umount -l $old
		mount -t tmpfs none /etc
		echo x:x:5:5::/right: >/etc/passwd
		mount --bind / $host
		mount -t tmpfs none $host/etc
		echo x:x:5:5::/wrong: >$host/etc/passwd
		exec `+run+` "echo ready; read end"`)
	cmd.Env = append(os.Environ(), "root="+t.TempDir(), "old="+t.TempDir(), "host="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	init, err := openInit(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = init.close(passBarriers) })
	return init
}

// The root of further processes is that of the mount namespace, also if the first
// process has another one.
func TestOpenRoot(t *testing.T) {
	for name, isChrooted := range map[string]bool{"as it was": false, "chrooted": true} {
		t.Run(name, func(t *testing.T) {
			init := startRooted(t, isChrooted)
			root, err := init.openRoot()
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if home := homeOf(root, 5); home != "/right" {
				t.Errorf("home %s, want /right", home)
			}
			term, err := openTerminal(root, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = term.master.Close(), term.slave.Close()
			joined, err := init.joinRoot()
			if err != nil {
				t.Fatal(err)
			}
			defer joined.Close()
			if got, want := mountID(t, root), mountID(t, joined); got != want {
				t.Errorf("it is mount %d, want %d", got, want)
			}
			path, err := os.Readlink(fmt.Sprintf("/proc/%d/root", init.pid))
			if needsJoin := path != "/"; err != nil || needsJoin != isChrooted {
				t.Errorf("the init's root is %q, %v", path, err)
			}
		})
	}
}

func mountID(t *testing.T, f *os.File) uint64 {
	t.Helper()
	var info unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &info); err != nil {
		t.Fatal(err)
	}
	return info.Mnt_id
}

// A process that has ended has no root, and that of another with its PID is not taken
// for it.
func TestOpenRootOfNone(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	init, err := openInit(cmd.Process.Pid)
	if err := errors.Join(err, in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = init.close(passBarriers) }()
	if _, err := init.openRoot(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ended: %v", err)
	}
	if _, err := init.joinRoot(); !errors.Is(err, unix.ESRCH) {
		t.Errorf("ended, joined: %v", err)
	}
	init.pid = os.Getpid()
	if _, err := init.openRoot(); !errors.Is(err, unix.ESRCH) {
		t.Errorf("another process: %v", err)
	}
}
