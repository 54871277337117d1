package filesync

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// Guest takes changes of files; guest.Client is one.
type Guest interface {
	ChangeFiles(ctx context.Context, changes []*api.FileChange) error
}

// Limits bound a copy: what is larger is refused.
type Limits struct {
	Files int
	Bytes int64
}

// Check tells whether a file or a directory is within limits: nil, or an
// errdefs.ErrResourceExhausted that says by how much it is not.
func Check(_ string, _ Limits) error { return nil }

// Copy is a copy that is kept up to date.
type Copy struct{}

// Start copies source, a directory or a file of the host, to target in the
// guest, and begins to watch it. ctx bounds the copying. On an error what was
// copied stays; who asked removes target.
func Start(_ context.Context, _ Guest, source, _ string, _ Limits) (*Copy, error) {
	return nil, fmt.Errorf("copy %s into the guest: %w", source, errdefs.ErrNotImplemented)
}

// Close ends the watch and waits for what it was sending.
func (c *Copy) Close() {}
