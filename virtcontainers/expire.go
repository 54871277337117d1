package virtcontainers

import (
	"time"

	"github.com/containerd/log"
)

const (
	// templateLife is how long a template stays that nothing uses, as a spare does
	// (shim/spare).
	templateLife = 24 * time.Hour
	// expiryPause is how often a sandbox looks for those, and how long one stays whose
	// files have changed.
	expiryPause = time.Hour
)

// expireTemplates removes templates that are not used any more, once a container
// runs, so as not to slow down the pod's start, and then from time to time.
func (s *Sandbox) expireTemplates() {
	if !s.awaitStarted() {
		return
	}
	again := time.NewTicker(expiryPause)
	defer again.Stop()
	for {
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.expireOnce()
		}()
		select {
		case <-done:
		case <-s.lifeCtx.Done():
			return // their disk may hang
		}
		select {
		case <-again.C:
		case <-s.lifeCtx.Done():
			return
		}
	}
}

func (s *Sandbox) expireOnce() {
	removed, err := s.templates().Expire(templateLife, expiryPause)
	for _, key := range removed {
		log.G(s.lifeCtx).WithField("template", key).Info("a template that was not used any more is removed")
	}
	if err != nil {
		log.G(s.lifeCtx).WithError(err).Warn("templates that are not used any more cannot be removed")
	}
}
