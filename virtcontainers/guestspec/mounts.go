package guestspec

import (
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ShmDestination is the mount that a pod's containers share from the guest's
// own memory instead of the host's.
const ShmDestination = "/dev/shm"

// Bind is a bind mount of the spec whose source is on the host and has to be
// brought into the guest.
type Bind struct {
	// Index is the mount's place in Spec.Mounts.
	Index int
	// Source is the path on the host.
	Source string
	// ReadOnly is set when the container may not write: the host's side then
	// refuses writes too, whatever the guest does.
	ReadOnly bool
	// Recursive is set for rbind.
	Recursive bool
}

// HostBinds lists the spec's bind mounts that need the host's files. Binds of
// /proc, /sys and /dev mean the guest's own; /dev/shm is the pod's.
func HostBinds(spec *specs.Spec) []Bind {
	var binds []Bind
	for i, m := range spec.Mounts {
		if !isBind(m) || m.Destination == ShmDestination || isKernelPath(m.Source) {
			continue
		}
		binds = append(binds, Bind{
			Index:     i,
			Source:    m.Source,
			ReadOnly:  isReadOnly(m.Options),
			Recursive: slices.Contains(m.Options, "rbind"),
		})
	}
	return binds
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// isReadOnly tells whether the last of ro and rw is ro, as mount(8) reads them.
func isReadOnly(options []string) bool {
	ro := false
	for _, o := range options {
		switch o {
		case "ro", "rro":
			ro = true
		case "rw":
			ro = false
		}
	}
	return ro
}

func isKernelPath(path string) bool {
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
