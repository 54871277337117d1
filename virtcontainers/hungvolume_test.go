package virtcontainers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/virtcontainers/config"
)

var errOver = errors.New("create_container_timeout is over")

// createHung creates a container with a volume that does not answer, until its time is
// over, and checks the error.
func (p *pod) createHung(id, source, destination string) {
	p.t.Helper()
	opts := p.options(id, nil)
	opts.Rootfs = layered(p.t)
	opts.Bundle.Spec.Mounts = []specs.Mount{{Destination: destination, Type: "bind", Source: source, Options: []string{"rbind", "rw"}}}
	// Long enough to come to the volume: before it, the root file system may need a disk.
	ctx, cancel := context.WithTimeoutCause(p.t.Context(), time.Second, errOver)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := p.Create(ctx, opts, ignore)
		failed <- err
	}()
	err := await(p.t, "the end of a create whose volume hangs", failed)
	wantError(p.t, "create", err, func(err error) bool { return errors.Is(err, errOver) }, source)
}

// A create whose volume hangs on the host ends with an error that names it, leaves
// nothing, and holds up neither other calls nor the sandbox's end.
func TestVolumeHangs(t *testing.T) {
	for _, shared := range []string{config.SharedFSVirtioFS, config.SharedFSNone} {
		for _, destination := range []string{"/data", "/dev/shm"} {
			t.Run(shared+destination, func(t *testing.T) {
				p := configured(t, func(c *config.Config) { c.Hypervisor.SharedFS = shared })
				hung, release := hungfs.Mount(t)
				t.Cleanup(release) // before the check for goroutines
				p.createHung("c1", hung, destination)
				opts := p.options("c1", nil)
				opts.Rootfs = layered(t)
				c, err := p.Create(t.Context(), opts, ignore)
				if err != nil {
					t.Fatalf("the same container without the volume: %v", err)
				}
				p.start(initOf(t, c))
				p.createHung("c2", hung, destination)
				if err := initOf(t, c).Kill(t.Context(), 9, true); err != nil {
					t.Error(err)
				}
				p.observer.expect(t, "c1=137")
				if _, err := c.Delete(t.Context()); err != nil {
					t.Error(err)
				}
				p.stopsSoon()
			})
		}
	}
}

// stopsSoon stops the sandbox, and fails the test if that takes long.
func (p *pod) stopsSoon() {
	p.t.Helper()
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop(context.Background()) }()
	if err := await(p.t, "the sandbox's end", stopped); err != nil {
		p.t.Error(err)
	}
}
