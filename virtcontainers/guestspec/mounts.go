package guestspec

import (
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ShmDestination is the mount that a pod's containers share from the guest's
// own memory instead of the host's.
const ShmDestination = "/dev/shm"

// socketType is the type of a mount that makes a UNIX socket of the host
// available. The OCI specification has none; the name is that of nerdbox,
// containerd's own runtime for virtual machines.
const socketType = "uds"

// Bind is a bind mount of the spec whose source is on the host and has to be
// brought into the guest.
type Bind struct {
	// Index is the mount's place in Spec.Mounts.
	Index int
	// Name is its name in the share, a number, if it must have a certain one. OfPod
	// is set if that is a name among the directories that the pod's containers have
	// in common, and not among the container's own mounts.
	Name  string
	OfPod bool
	// Source is the path on the host.
	Source string
	// ReadOnly is set if the container may not write: the host then refuses
	// writes too, whatever the guest does.
	ReadOnly bool
	// Devices and FileCapabilities are set if the container may make device nodes where it
	// may write, and give programs capabilities: the host otherwise refuses that too.
	Devices, FileCapabilities bool
	// RecursiveReadOnly is set if that applies to the mounts below Source too
	// (rro).
	RecursiveReadOnly bool
	// Recursive is set for rbind.
	Recursive bool
	// Slave is set if mounts that the host makes later below Source must be
	// visible.
	Slave bool
	// Socket is set for a mount of type "uds": Source is a UNIX socket; its
	// path is resolved for each connection, and it need not exist yet.
	Socket bool
	// IDMap maps the files' owners to the ids that the container sees; nil
	// leaves them.
	IDMap *IDMap
	// KeepsFlags is set if the spec has no mount flags: the container's mount
	// has those of its source.
	KeepsFlags bool
}

// IDMap is the mapping of an idmapped mount (mount_setattr(2)).
type IDMap struct {
	UIDs, GIDs []specs.LinuxIDMapping
	// Recursive is set if it applies to the mounts below Source too (ridmap).
	Recursive bool
}

// Placed is a bind whose source was brought into the guest.
type Placed struct {
	Bind
	// At is the source's path in the guest, empty if the guest mounts it as one of the
	// container's devices.
	At string
	// Writable is set for a read-only bind that the guest must mount writable:
	// the host refuses writes to it but not to mounts below it, present or later,
	// which the guest cannot distinguish.
	Writable bool
	// Flags are the source's mount flags that the container's mount is to have
	// too, as options (noexec, ...).
	Flags []string
}

// Sources answers what only a look at a mount's source on the host can tell.
type Sources struct {
	// IsVolume reports whether the source of a mount at /dev/shm is a user's volume.
	IsVolume func(source string) bool
	// IsHosts reports whether a source below /dev is one that a guest can have of the
	// host, such as a disk.
	IsHosts func(source string) bool
	// InGuest returns the file of the guest's own /proc or /sys to which a source leads
	// by symbolic links, "" if to none.
	InGuest func(source string) string
}

// HostBinds lists the spec's bind mounts that need the host's files. Binds of
// /proc, /sys and, but for what IsHosts says, /dev mean the guest's own; a mount at
// /dev/shm means the pod's, unless its source is a volume. linked has, by their places
// in Spec.Mounts, the guest's own files of those whose sources lead there by symbolic
// links, such as /etc/mtab: the host's would show its processes, and the shim as self.
func HostBinds(spec *specs.Spec, ask Sources) (binds []Bind, linked map[int]string) {
	linked = map[int]string{}
	for i, m := range spec.Mounts {
		socket := m.Type == socketType
		if !socket && (!isBind(m) || ask.isGuests(m.Source) || isShm(m) && !ask.IsVolume(m.Source)) {
			continue
		}
		if !socket {
			if at := ask.InGuest(m.Source); at != "" {
				linked[i] = at
				continue
			}
		}
		readOnly, recursive := isReadOnly(m.Options)
		binds = append(binds, Bind{
			Index:             i,
			Source:            m.Source,
			ReadOnly:          readOnly,
			Devices:           makesDevices(spec),
			FileCapabilities:  mayHave(spec, "CAP_SETFCAP"),
			RecursiveReadOnly: recursive,
			Recursive:         slices.Contains(m.Options, "rbind"),
			Slave:             hasAny(m.Options, slave) || hasAny(m.Options, shared),
			Socket:            socket,
			IDMap:             idMapOf(spec, m),
			KeepsFlags:        !hasAny(m.Options, mountFlags),
		})
	}
	return binds, linked
}

// makesDevices reports whether the container may make device nodes. If it has a user
// namespace, none of its processes can: Linux asks for CAP_MKNOD in the first one
// (fs/namei.c, vfs_mknod).
func makesDevices(spec *specs.Spec) bool {
	return mayHave(spec, "CAP_MKNOD") && (spec.Linux == nil || wishFor(spec, specs.UserNamespace).host)
}

// mayHave reports whether a process of the container may have a capability.
func mayHave(spec *specs.Spec, capability string) bool {
	return spec.Process != nil && spec.Process.Capabilities != nil && slices.Contains(spec.Process.Capabilities.Bounding, capability)
}

// The mount(8) options for propagation from the host, and for propagation to
// it, which a VM cannot provide.
var (
	slave  = []string{"slave", "rslave"}
	shared = []string{"shared", "rshared"}
)

// mountFlags are the options that are flags of a mount. As with runc, a bind mount that
// names any of them, set or cleared, has exactly the flags that it names; one that names
// none keeps its source's (libcontainer, mountToRootfs).
var mountFlags = []string{
	"async", "atime", "dev", "diratime", "dirsync", "exec", "iversion", "lazytime", "loud", "mand", "noatime", "nodev", "nodiratime", "noexec",
	"noiversion", "nolazytime", "nomand", "norelatime", "nostrictatime", "nosuid", "nosymfollow", "relatime", "ro", "rw", "silent", "strictatime", "suid",
	"symfollow", "sync",
}

// idmapped are the options of an idmapped mount.
var idmapped = []string{"idmap", "ridmap"}

// idMapOf returns the mapping that a mount requests: its own, or with the
// option alone the container's.
func idMapOf(spec *specs.Spec, m specs.Mount) *IDMap {
	recursive := isRecursivelyMapped(m.Options)
	switch {
	case len(m.UIDMappings) > 0 || len(m.GIDMappings) > 0:
		return &IDMap{UIDs: m.UIDMappings, GIDs: m.GIDMappings, Recursive: recursive}
	case hasAny(m.Options, idmapped):
		return &IDMap{UIDs: spec.Linux.UIDMappings, GIDs: spec.Linux.GIDMappings, Recursive: recursive}
	}
	return nil
}

// isRecursivelyMapped reports whether the last of idmap and ridmap is ridmap, as
// runc reads them. Kubernetes' mounts have neither.
func isRecursivelyMapped(options []string) bool {
	recursive := false
	for _, o := range options {
		if slices.Contains(idmapped, o) {
			recursive = o == "ridmap"
		}
	}
	return recursive
}

func hasAny(options, words []string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return slices.Contains(words, o) })
}

// without returns the options that are not among words.
func without(options []string, words ...string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(o string) bool { return slices.Contains(words, o) })
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// isReadOnly reports whether a mount is read-only, and whether the mounts below it
// are too, as runc reads the options: the last of ro and rw counts, and after it for
// all of them the last of rro and rrw.
func isReadOnly(options []string) (readOnly, recursive bool) {
	all := ""
	for _, o := range options {
		switch o {
		case "ro", "rw":
			readOnly = o == "ro"
		case "rro", "rrw":
			all = o
		}
	}
	return all == "rro" || all == "" && readOnly, all == "rro"
}

func isShm(m specs.Mount) bool { return path.Clean("/"+m.Destination) == ShmDestination }

// isGuests reports whether a mount's source means the guest's own file.
func (ask Sources) isGuests(source string) bool {
	return isBelow(source, "/proc", "/sys") || isBelow(source, "/dev") && !ask.IsHosts(source)
}

// isBelow reports whether a path is one of the directories, or below it.
func isBelow(source string, dirs ...string) bool {
	source = path.Clean(source)
	return slices.ContainsFunc(dirs, func(dir string) bool { return source == dir || strings.HasPrefix(source, dir+"/") })
}
