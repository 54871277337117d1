package bundle

import (
	"fmt"
	"path"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/netns"
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
		return "", fmt.Errorf("the spec has no network namespace: %w", netns.ErrHost)
	}
	if p := b.Spec.Linux.Namespaces[i].Path; p != "" {
		return p, nil
	}
	return b.Spec.Annotations[netnsAnnotation], nil
}

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
