package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/virtcontainers"
)

// Hibernate makes the pod's shim save the guest's memory to disk and return it to
// the host. It blocks until that is done, management.HibernateTimeout at most. If
// ctx ends earlier, the shim continues.
func (p Pod) Hibernate(ctx context.Context) (virtcontainers.Hibernation, error) {
	var saved virtcontainers.Hibernation
	answer, err := p.post(ctx, management.HibernatePath)
	if err == nil {
		err = json.Unmarshal(answer, &saved)
	}
	if err != nil {
		return saved, fmt.Errorf("hibernate pod %s: %w", p.ID, err)
	}
	return saved, nil
}

// Wake continues the pod if it hibernates. It blocks until the pod runs,
// management.HibernateTimeout at most. If ctx ends earlier, the shim continues.
func (p Pod) Wake(ctx context.Context) error {
	if _, err := p.post(ctx, management.WakePath); err != nil {
		return fmt.Errorf("wake pod %s: %w", p.ID, err)
	}
	return nil
}

// post sends a request that may move all of the guest's memory. A quick request
// before it detects a shim that hangs.
func (p Pod) post(ctx context.Context, path string) ([]byte, error) {
	if _, err := p.Ask(ctx, "/sandbox"); err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, management.HibernateTimeout+askTimeout)
	defer cancel()
	return p.request(ctx, http.MethodPost, path, nil)
}

// ready waits until the pod is awake, before a call to its guest: the call's own
// timeout is too short for that. The pods of older shims are always awake.
func (p Pod) ready(ctx context.Context) error {
	if err := p.Wake(ctx); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}
