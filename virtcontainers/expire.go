package virtcontainers

import (
	"context"
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

// expire removes templates that are not used any more, once a container runs, and then
// from time to time, if the configuration has templates. It returns when the pod ends,
// and ctx with it.
func (s *stock) expire(ctx context.Context) {
	if !s.config.Factory.Template || !s.awaitStarted(ctx) {
		return
	}
	again := time.NewTicker(expiryPause)
	defer again.Stop()
	for {
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.expireOnce(ctx)
		}()
		select {
		case <-done:
		case <-ctx.Done():
			return // their disk may hang
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *stock) expireOnce(ctx context.Context) {
	removed, err := s.templates.Expire(templateLife, expiryPause)
	for _, key := range removed {
		log.G(ctx).WithField("template", key).Info("a template that was not used any more is removed")
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("templates that are not used any more cannot be removed")
	}
}
