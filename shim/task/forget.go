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
// its health checks as execs, without a bound on their number.
func (s *Service) execEnded(containerID, execID string) {
	if s.policy.KeepExecs == 0 {
		return
	}
	time.AfterFunc(s.policy.KeepExecs, func() {
		ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
		defer cancel()
		p, err := s.process(containerID, execID)
		if err == nil {
			_, err = p.Delete(ctx)
		}
		if err != nil && !errdefs.IsNotFound(err) {
			log.G(ctx).WithError(err).Debug("exec is not forgotten")
		}
	})
}
