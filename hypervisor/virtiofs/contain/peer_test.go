package contain

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// peerUser is a user id that a test host does not use.
const peerUser = 1879048197

// sleeper starts a process of a user, until the test's end.
func sleeper(t *testing.T, uid uint32) *Peer {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Peer{PID: cmd.Process.Pid, UID: uid, GID: uid}
}

// A thread with a peer may access that process's memory, and no other's, not
// even that of another process with the peer's user.
func TestPeer(t *testing.T) {
	peer, twin, root := sleeper(t, peerUser), sleeper(t, peerUser), sleeper(t, 0)
	dir := t.TempDir()
	err := insideWith(t, dir, peer, func() error {
		var errs []error
		for name, tt := range map[string]struct {
			pid  int
			want unix.Errno
		}{"peer": {peer.PID, unix.EFAULT}, "twin": {twin.PID, unix.EPERM}, "root": {root.PID, unix.EPERM}, "init": {1, unix.EPERM}, "self": {os.Getpid(), unix.EPERM}} {
			b := make([]byte, 1)
			local, remote := []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Len: 1}}
			if _, err := unix.ProcessVMReadv(tt.pid, local, remote, 0); !errors.Is(err, tt.want) {
				errs = append(errs, fmt.Errorf("read from %s: %w", name, err))
			}
			if _, err := unix.ProcessVMWritev(tt.pid, local, remote, 0); !errors.Is(err, tt.want) {
				errs = append(errs, fmt.Errorf("write to %s: %w", name, err))
			}
		}
		// Files are still made by root.
		fd, err := unix.Open("/made", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		return errors.Join(append(errs, err, unix.Close(fd))...)
	})
	if err != nil {
		t.Error(err)
	}
	info, err := os.Stat(dir + "/made")
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the file is not root's: %v", err)
	}
}

func TestNoPeer(t *testing.T) {
	peer := sleeper(t, peerUser)
	err := inside(t, t.TempDir(), func() error {
		_, err := unix.ProcessVMReadv(peer.PID, []unix.Iovec{{}}, []unix.RemoteIovec{{}}, 0)
		return err
	})
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("without a peer: %v", err)
	}
}

// A process that cannot be a peer is noticed before a thread serves.
func TestWrongPeer(t *testing.T) {
	ended := *sleeper(t, peerUser)
	ended.UID++
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, peer := range map[string]*Peer{"another user's": &ended, "gone": {PID: gone.Process.Pid, UID: peerUser, GID: peerUser}} {
		if err := insideWith(t, t.TempDir(), peer, func() error { return nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
		result := make(chan error, 1)
		ownthread.Go(func() { result <- peer.Probe() })
		if err := <-result; err == nil {
			t.Errorf("%s: probed without an error", name)
		}
	}
}
