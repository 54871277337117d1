package virtiofs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/virtiofs/contain"
	"github.com/katabox/katabox/internal/ownthread"
)

// Reach makes the server reach the guest's memory in its owner, a process that
// does not share it. It replaces the threads, and must be called before the
// front end connects. It fails if the threads may not access the process.
func (s *Server) Reach(owner hypervisor.MemoryOwner) error {
	return withPeer(owner, func(peer *contain.Peer) error {
		s.jail.Peer = peer
		pool, err := newPool(s.dev, s.fs, s.jail, s.failed)
		if err != nil {
			return err
		}
		old := s.pool
		s.pool = pool
		s.dev.by.Store(&server{pool, owner})
		return old.close(closeWait)
	})
}

// Reachable returns why Reach would fail for a process, or nil. What it asks
// are the host's rules for processes (ptrace(2), "Ptrace access mode checking").
func Reachable(owner hypervisor.MemoryOwner) error {
	return withPeer(owner, func(peer *contain.Peer) error {
		return ownthread.Run(peer.Probe)
	})
}

// withPeer calls f with the owner's process, which is held meanwhile.
func withPeer(owner hypervisor.MemoryOwner, f func(*contain.Peer) error) error {
	pid, ok := owner.Hold()
	if !ok {
		return fmt.Errorf("reach private memory: %w", unix.ESRCH)
	}
	defer owner.Release()
	uid, gid := owner.User()
	if err := f(&contain.Peer{PID: pid, UID: uid, GID: gid}); err != nil {
		return fmt.Errorf("reach private memory: %w", err)
	}
	return nil
}
