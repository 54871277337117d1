package container

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// mountNamespace is the agent's hold on a container's mount namespace: its file
// systems are unmounted by close, and not by the exit of the last process.
//
// Each of the host's mounts is a submount of the share, a file system that goes with
// its last mount. A killed process leaves requests behind, such as those that read
// ahead, and each holds an inode until its answer comes. The kernel waits for them
// when the whole share is unmounted, and not with a submount (virtio_kill_sb in
// fs/fuse/virtio_fs.c): it finds busy inodes then, and where CONFIG_BUG_ON_DATA_CORRUPTION
// is set, as in Debian, ends the process on the spot (generic_shutdown_super in
// fs/super.c). An init that this happens to is never reaped.
type mountNamespace struct {
	mu   sync.Mutex // guards the rest
	fd   int        // -1: given up
	kept bool       // the share's file systems stay
}

// openMounts opens the mount namespace of a process. One that was killed has left it.
func openMounts(pid int) (*mountNamespace, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return &mountNamespace{fd: -1}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the init's mount namespace: %w", err)
	}
	return &mountNamespace{fd: fd}, nil
}

// barriers is how many requests are sent to the share, and answered, before its
// submounts are unmounted. The built-in server has answered all earlier requests by then,
// and the guest's kernel takes answers in order: once it has the first barrier's answer,
// it has all earlier ones. An external virtiofsd may not have answered them all, but it
// answers in order, unless it was given more threads. The answer to a read may end the
// last use of a file, which sends another request; that one is answered before the second
// barrier.
const barriers = 2

// barrierTimeout bounds the wait for their answers: an external virtiofsd may hang.
const barrierTimeout = 2 * time.Second

// passBarriers reports whether the share has answered in time. A guest without one has
// nothing to wait for.
func passBarriers() bool {
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for range barriers {
			var info unix.Statfs_t
			_ = unix.Statfs(api.GuestSharedDir, &info)
		}
	}()
	select {
	case <-passed:
		return true
	case <-time.After(barrierTimeout):
		return false
	}
}

// close unmounts the namespace's file systems, unless others have them mounted too.
// It blocks while these write back what they have to. The container's processes must
// have ended. If the share does not answer, which settled reports (passBarriers), its
// file systems stay, as with keep, whose error close returns.
func (m *mountNamespace) close(settled func() bool) (err error) {
	if m.needsBarriers() && !settled() {
		err = m.keep()
	}
	if fd := m.take(); fd >= 0 {
		_ = unix.Close(fd)
	}
	return err
}

// needsBarriers reports whether close would unmount file systems of the share.
func (m *mountNamespace) needsBarriers() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fd >= 0 && !m.kept
}

// keep has the file systems of the share stay mounted until the guest ends. The others
// still go with close: what was written to a disk must get there, and the disk be
// free. After an error all stay, those on disks too.
func (m *mountNamespace) keep() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fd < 0 || m.kept {
		return nil
	}
	m.kept = true
	err := holdShare(m.fd)
	if err != nil {
		m.fd = -1 // and stays open
	}
	return err
}

func (m *mountNamespace) take() (fd int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fd, m.fd = m.fd, -1
	return fd
}
