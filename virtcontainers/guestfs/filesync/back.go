package filesync

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/intime"
)

// Reader reads the end of a file in the guest; guest.Client is one.
type Reader interface {
	ReadFile(ctx context.Context, path string) ([]byte, error)
}

// Back overwrites the host's file with the end of the guest's copy, as much as
// from reads: what a container wrote into the copy of a single file. Afterwards
// the copy no longer follows the host's file. On an error the host's file is
// unchanged or partly written, or still written to if its file system hangs. It must
// come before Close.
func (c *Copy) Back(ctx context.Context, from Reader) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	err := c.endIn(closing, c.stop) // The source stays open.
	if err == nil {
		err = c.back(ctx, from)
	}
	if err != nil {
		return fmt.Errorf("copy %s back from the guest: %w", c.source.path(), err)
	}
	return nil
}

func (c *Copy) back(ctx context.Context, from Reader) error {
	if c.source.name == "" {
		return fmt.Errorf("it is a directory: %w", errdefs.ErrInvalidArgument)
	}
	content, err := from.ReadFile(ctx, c.target)
	if err != nil {
		return err
	}
	return intime.Do(ctx, func() error { return c.source.overwrite(content) })
}

// overwrite replaces the content of a single file. It does not follow a link.
func (s *source) overwrite(content []byte) error {
	f, err := s.openSingle(os.O_WRONLY | unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is not a regular file any more: %w", errdefs.ErrFailedPrecondition)
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Close()
}
