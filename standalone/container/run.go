package container

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/standalone/spec"
	"github.com/katabox/katabox/standalone/store"
	"github.com/katabox/katabox/standalone/usernet"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// undoTimeout bounds each undo after a failure.
const undoTimeout = 60 * time.Second

// NoNetwork is the value of Network for no network.
const NoNetwork = "none"

// Options are a user's options for a run.
type Options struct {
	// Name is the container's name; "" generates one.
	Name string
	// Remove removes the container when it ends.
	Remove bool
	// Network is the name of a network's program, NoNetwork, or "" for the first
	// that is installed.
	Network string
	Ports   []usernet.Port
	// Spec has the options of the specification. The run fills in ID, NetNS and
	// part of Mounts.
	Spec spec.Options
	// Warn is called with a warning about anything unexpected.
	Warn func(string)
}

// Check refuses options that are invalid whatever the image is, before it is
// pulled and unpacked.
func (o *Options) Check() error {
	if o.Name != "" {
		if err := store.CheckName(o.Name); err != nil {
			return err
		}
	}
	switch o.Network {
	case "", usernet.Pasta, usernet.Slirp:
		return nil
	case NoNetwork:
		if len(o.Ports) == 0 {
			return nil
		}
		return fmt.Errorf("publish port %s: the network is none: %w", o.Ports[0], errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("network %q: want %s, %s or %s: %w", o.Network, usernet.Pasta, usernet.Slirp, NoNetwork, errdefs.ErrInvalidArgument)
}

// Container is a container that this process runs.
type Container struct {
	process

	m      *Manager
	record *Record
	dir    string
	img    store.Image
	net    *usernet.Net
	undo   []func(context.Context) error
	// cancelled is set if a call to the shim was cancelled: the shim works on it until
	// the connection is closed.
	cancelled bool
}

// Create makes a container of an image, including its machine, without starting
// the command. On an error nothing is left. The caller has called the store's
// Use, and may unlock it afterwards.
func (m *Manager) Create(ctx context.Context, img store.Image, o Options, stdio *Stdio) (_ *Container, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	c := &Container{m: m, img: img, process: process{Name: o.Name}}
	if c.Name == "" {
		c.Name = randomName()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.unwind(ctx))
		}
	}()
	for _, step := range []func(context.Context, *Options) error{c.makeDir, c.startNetwork, c.writeFiles, c.writeSpec} {
		if err := step(ctx, &o); err != nil {
			return nil, err
		}
	}
	return c, c.boot(ctx, o, stdio)
}

func randomName() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}

// unwind undoes the steps that were done, in reverse order.
func (c *Container) unwind(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(c.undo) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		errs = append(errs, undo(ctx))
		cancel()
	}
	c.undo = nil
	return errors.Join(errs...)
}

// makeDir makes the container's directory, with its record in it.
func (c *Container) makeDir(_ context.Context, o *Options) error {
	dir, err := c.m.Store.MakeContainer(c.Name, c.img)
	if err != nil {
		return err
	}
	c.dir = dir
	c.undo = append(c.undo, func(context.Context) error { return c.m.Store.RemoveContainer(c.Name) })
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		return err
	}
	c.record = &Record{
		Name: c.Name, Image: c.img.Name, Created: time.Now(), Engine: self, Remove: o.Remove,
		Network: NoNetwork, Ports: o.Ports, StopSignal: c.img.Config.StopSignal,
	}
	return c.m.write(c.record)
}

// startNetwork starts the network's program, if there is one.
func (c *Container) startNetwork(ctx context.Context, o *Options) error {
	if o.Network == NoNetwork {
		return nil
	}
	dir := filepath.Join(c.dir, "net")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make network's directory: %w", err)
	}
	net, err := usernet.Start(ctx, usernet.Config{Program: o.Network, Dir: dir, Ports: o.Ports})
	if errdefs.IsNotFound(err) && o.Network == "" && len(o.Ports) == 0 {
		o.Warn("no network: neither pasta nor slirp4netns is installed (apt-get install passt)")
		return nil
	}
	if err != nil {
		return err
	}
	c.net, c.record.Network = net, net.Program
	o.Spec.NetNS = net.Path()
	c.undo = append(c.undo, func(context.Context) error { return net.Close() })
	return nil
}
