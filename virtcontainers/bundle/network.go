package bundle

import (
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// netnsAnnotation is where nerdctl names the network namespace that it makes
// for a container whose spec names none.
const netnsAnnotation = "nerdctl/network-namespace"

// NetNS is the path of the network namespace that the engine made for the
// container's pod; empty when it made none. A spec without a network namespace
// asks for the host's network, which a VM cannot have.
func (b *Bundle) NetNS() (string, error) {
	i := slices.IndexFunc(b.Spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool {
		return ns.Type == specs.NetworkNamespace
	})
	if i < 0 {
		return "", fmt.Errorf("the spec has no network namespace: %w", ErrHostNetwork)
	}
	if p := b.Spec.Linux.Namespaces[i].Path; p != "" {
		return p, nil
	}
	return b.Spec.Annotations[netnsAnnotation], nil
}

// ErrHostNetwork is the refusal of the host's network.
var ErrHostNetwork = fmt.Errorf("host network requested, which is not supported: a virtual machine has a network of its own: %w", errdefs.ErrInvalidArgument)

// ResolvConf is the host path of the file that the engine mounts as the
// container's /etc/resolv.conf; empty if it mounts none.
func (b *Bundle) ResolvConf() string {
	for _, m := range slices.Backward(b.Spec.Mounts) { // the last mount is on top
		if path.Clean(m.Destination) == "/etc/resolv.conf" {
			return m.Source
		}
	}
	return ""
}
