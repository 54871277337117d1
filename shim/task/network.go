package task

import (
	"context"
	"errors"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/netns"
	"github.com/katabox/katabox/virtcontainers/podnet"
)

// network returns what the spec of the sandbox's own container says about the
// pod's network. A VM cannot have the host's network. A pod that asks for it by
// CRI is refused with netns.ErrHost: containers of such pods expect the host's
// addresses and sockets. A single container gets a namespace with loopback only,
// into which the engine, or a hook, may put links while it runs; many containers
// ask for the host's network only to avoid having one set up. With
// disable_new_netns no pod has a network.
func (s *Service) network(ctx context.Context, b *bundle.Bundle, cfg *config.Config) (podnet.Spec, error) {
	path, asked := b.NetNS()
	spec := podnet.Spec{Namespace: path, ResolvConf: b.ResolvConf()}
	if cfg.Runtime.DisableNewNetNS || asked && !isHostNetwork(path) {
		return spec, nil
	}
	place, err := s.place(s.opts.ID, b.Spec.Annotations)
	if err != nil {
		return spec, err
	}
	if place.Kind != bundle.Single {
		return spec, netns.ErrHost
	}
	log.G(ctx).WithField("container", s.opts.ID).Warn("the container asks for the host's network, which a virtual machine cannot have: " +
		"it gets its own network namespace with loopback only")
	spec.Namespace = ""
	return spec, nil
}

// isHostNetwork reports whether a network namespace is the host's. If it cannot
// be opened, the boot will report that.
func isHostNetwork(path string) bool {
	if path == "" {
		return false
	}
	ns, err := netns.Open(path)
	if err == nil {
		_ = ns.Close() // opened only to inspect it
	}
	return errors.Is(err, netns.ErrHost)
}
