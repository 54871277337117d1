package passthrough

import (
	"context"
	"fmt"
	"slices"
)

// closing are descriptors to be closed, by their mounts. Closing a file writes back what
// was written to it, on network file systems and others (FUSE_FLUSH), and the last
// descriptor of an unmounted file system ends it: either hangs if the file system does.
type closing map[*tree][]int

func (c closing) add(t *tree, fd int) { c[t] = append(c[t], fd) }

// within closes all and waits for that within ctx. Descriptors of a mount that hangs for
// longer are left to be closed when it answers, and the error names such a mount.
func (c closing) within(ctx context.Context) error {
	done := make(chan *tree, len(c))
	left := map[*tree]bool{}
	for t, fds := range c {
		left[t] = true
		go func() {
			closeAll(fds)
			done <- t
		}()
	}
	for len(left) > 0 {
		select {
		case t := <-done:
			delete(left, t)
			continue
		default:
		}
		select {
		case t := <-done:
			delete(left, t)
		case <-ctx.Done():
			return hungClose(left, context.Cause(ctx))
		}
	}
	return nil
}

// hungClose is the error for mounts whose files could not be closed in time.
func hungClose(left map[*tree]bool, cause error) error {
	var paths []string
	for t := range left {
		if t.path != "" { // the share's own tree
			paths = append(paths, t.path)
		}
	}
	slices.Sort(paths)
	return fmt.Errorf("close files below %q in the share, of %d mounts: the host's file system hangs: %w", paths[:min(len(paths), 3)], len(left), cause)
}
