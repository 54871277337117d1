package guestfs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/katabox/katabox/virtcontainers/guestfs/filesync"
)

// results are the copies of single files that go back to the host.
type results struct {
	mu     sync.Mutex // guards copies
	copies []*filesync.Copy
}

// resultsWait bounds BringBack: the container's exit waits for it.
const resultsWait = 2 * time.Second

func (c *Container) noteResult(copied *filesync.Copy) {
	c.results.mu.Lock()
	defer c.results.mu.Unlock()
	c.results.copies = append(c.results.copies, copied)
}

// BringBack copies the container's termination message to the host. The
// container's processes must have ended. It waits for the copy to finish
// sending (filesync.Copy.Close) and then 2 s at most, and may be called
// concurrently with other methods. A second call does nothing.
func (c *Container) BringBack(ctx context.Context) error {
	c.results.mu.Lock()
	copies := c.results.copies
	c.results.copies = nil
	c.results.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, resultsWait)
	defer cancel()
	var errs []error
	for _, copied := range copies {
		errs = append(errs, copied.Back(ctx, c.pod.guest))
	}
	return errors.Join(errs...)
}
