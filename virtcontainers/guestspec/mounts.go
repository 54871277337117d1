package guestspec

import (
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ShmDestination is the mount that a pod's containers share from the guest's
// own memory instead of the host's.
const ShmDestination = "/dev/shm"

// socketType is the type of a mount that brings in a UNIX socket of the host's.
// The OCI specification has none; the name is that of nerdbox, containerd's own
// runtime for virtual machines.
const socketType = "uds"

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
	// RecursiveReadOnly is set when that goes for the mounts below Source
	// too (rro).
	RecursiveReadOnly bool
	// Recursive is set for rbind.
	Recursive bool
	// Slave is set when mounts that the host makes below Source later must be
	// seen.
	Slave bool
	// Socket is set for a mount of type "uds": Source is a UNIX socket to which
	// each connection is made by its path, whether or not it is there now.
	Socket bool
	// IDMap says which ids the container sees its files' owners as; nil
	// leaves them.
	IDMap *IDMap
}

// IDMap is the mapping of an idmapped mount (mount_setattr(2)).
type IDMap struct{ UIDs, GIDs []specs.LinuxIDMapping }

// Placed is a bind whose source was brought into the guest.
type Placed struct {
	Bind
	// At is where in the guest the source is.
	At string
	// Writable is set for a read-only one that the guest must mount writable:
	// the host refuses the writes, to it but not to a mount below it, which the
	// guest cannot tell apart.
	Writable bool
}

// HostBinds lists the spec's bind mounts that need the host's files. Binds of
// /proc, /sys and /dev mean the guest's own; what is mounted at /dev/shm is the
// pod's, unless isVolume says of its source that a user has put it there.
func HostBinds(spec *specs.Spec, isVolume func(source string) bool) []Bind {
	var binds []Bind
	for i, m := range spec.Mounts {
		socket := m.Type == socketType
		if !socket && (!isBind(m) || isKernelPath(m.Source) || m.Destination == ShmDestination && !isVolume(m.Source)) {
			continue
		}
		binds = append(binds, Bind{
			Index:             i,
			Source:            m.Source,
			ReadOnly:          isReadOnly(m.Options),
			RecursiveReadOnly: isReadOnly(m.Options) && slices.Contains(m.Options, "rro"),
			Recursive:         slices.Contains(m.Options, "rbind"),
			Slave:             hasAny(m.Options, slave) || hasAny(m.Options, shared),
			Socket:            socket,
			IDMap:             idMapOf(spec, m),
		})
	}
	return binds
}

// The options of mount(8) that ask for propagation from the host, and for
// propagation to it, which a VM cannot give.
var (
	slave  = []string{"slave", "rslave"}
	shared = []string{"shared", "rshared"}
)

// idmapped are the options of an idmapped mount.
var idmapped = []string{"idmap", "ridmap"}

// idMapOf is the mapping that a mount asks for: its own, or with the option
// alone the container's.
func idMapOf(spec *specs.Spec, m specs.Mount) *IDMap {
	switch {
	case len(m.UIDMappings) > 0 || len(m.GIDMappings) > 0:
		return &IDMap{UIDs: m.UIDMappings, GIDs: m.GIDMappings}
	case hasAny(m.Options, idmapped):
		return &IDMap{UIDs: spec.Linux.UIDMappings, GIDs: spec.Linux.GIDMappings}
	}
	return nil
}

func hasAny(options, words []string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return slices.Contains(words, o) })
}

// without gives the options that are none of words.
func without(options []string, words ...string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(o string) bool { return slices.Contains(words, o) })
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// isReadOnly reports whether the last of ro and rw is ro, as mount(8) reads them.
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
