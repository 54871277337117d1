package task

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// execEnded forgets the exec after a while if the engine may not: iSulad's health
// checks and CRI-O's probes are execs, without a bound on their number. A pod that hibernates is
// not woken for that. Another exec may have its id by then.
func (s *Service) execEnded(containerID, execID string) {
	if s.policy.KeepExecs == 0 {
		return
	}
	p, err := s.process(containerID, execID)
	if err != nil {
		return // it is deleted
	}
	time.AfterFunc(s.policy.KeepExecs, func() {
		if err := ignoreNotFound(p.Forget()); err != nil {
			log.G(context.Background()).WithError(err).Debug("exec is not forgotten")
		}
	})
}

// ignoreNotFound is for removals: what is gone need not be removed.
func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
