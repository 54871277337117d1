package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/publish"
)

// publishedDir, in the sandbox's directory, holds the host's sockets that lead
// to containers' sockets. They are removed with that directory, even when the
// shim was killed. The name is short because of the limit of a socket's address
// (unix(7)).
const publishedDir = "uds"

// publishSockets makes a socket on the host for each of the container's sockets
// that its annotation names. Neither the annotation nor the guest chooses its
// directory on the host.
func (c *Container) publishSockets(ctx context.Context) error {
	wanted, err := bundle.PublishedSockets(c.ID, c.Bundle.Spec.Annotations)
	if err != nil || len(wanted) == 0 {
		return err
	}
	s := c.sandbox
	dir := filepath.Join(s.platform.PodDir(s.ID), publishedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("publish sockets: %w", err)
	}
	for _, w := range wanted {
		if err := c.publishSocket(ctx, filepath.Join(dir, w.Name), w); err != nil {
			return errors.Join(err, c.unpublish(ctx))
		}
	}
	return nil
}

func (c *Container) publishSocket(ctx context.Context, path string, w bundle.PublishedSocket) error {
	socket, err := publish.Listen(ctx, publish.Place{Path: path, Seqpacket: w.Seqpacket}, func(ctx context.Context) (guest.Conn, error) {
		client, err := c.sandbox.agent()
		if err != nil {
			return nil, err
		}
		return client.ForwardSocket(ctx, c.ID, w.Path, w.Seqpacket)
	})
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("publish socket %s of the container: another container of the pod has that name; give each its own, or say NAME=CONTAINER:PATH: %w", w.Name, errdefs.ErrAlreadyExists)
	}
	if err != nil {
		return fmt.Errorf("publish socket %s of the container: %w", w.Name, err)
	}
	c.published = append(c.published, socket)
	log.G(ctx).WithField("container", c.ID).Infof("the container's UNIX socket %s is reached at %s", w.Path, path)
	return nil
}

// unpublish removes the container's sockets on the host and ends their
// connections.
func (c *Container) unpublish(context.Context) error {
	var errs []error
	for _, socket := range c.published {
		errs = append(errs, socket.Close())
	}
	c.published = nil
	return errors.Join(errs...)
}
