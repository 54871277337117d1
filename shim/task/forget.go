package task

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// forgetTimeout bounds the call that makes the guest forget an exec.
const forgetTimeout = 10 * time.Second

// execEnded forgets the exec after a while if the engine will not: iSulad runs
// its health checks as execs, without a bound on their number. Another exec may have
// its id by then.
func (s *Service) execEnded(containerID, execID string) {
	if s.policy.KeepExecs == 0 {
		return
	}
	p, err := s.process(containerID, execID)
	if err != nil {
		return // it is deleted
	}
	time.AfterFunc(s.policy.KeepExecs, func() {
		ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
		defer cancel()
		if _, err := p.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
			log.G(ctx).WithError(err).Debug("exec is not forgotten")
		}
	})
}
