package bundle

import (
	"path"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// netnsAnnotation holds the network namespace that nerdctl makes for a
// container if the spec names none.
const netnsAnnotation = "nerdctl/network-namespace"

// NetNS is the path of the network namespace that the engine made for the
// container's pod, or empty when it made none. asked reports whether the spec
// requests a network namespace at all: without one the container shares the
// host's.
func (b *Bundle) NetNS() (path string, asked bool) {
	i := slices.IndexFunc(b.Spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool {
		return ns.Type == specs.NetworkNamespace
	})
	if i < 0 {
		return "", false
	}
	if p := b.Spec.Linux.Namespaces[i].Path; p != "" {
		return p, true
	}
	return b.Spec.Annotations[netnsAnnotation], true
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
