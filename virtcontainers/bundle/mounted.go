package bundle

import (
	"fmt"
	"path"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// MountedDevice describes the block device at a path of the host, to which the source of
// the spec's mount at index leads. A mount grants nothing: it fails with
// errdefs.ErrFailedPrecondition if the rules of the container's cgroup allow neither to
// read nor to write the device.
func MountedDevice(spec *specs.Spec, index int, node string) (BlockDevice, error) {
	var st unix.Stat_t
	if err := unix.Stat(node, &st); err != nil {
		return BlockDevice{}, fmt.Errorf("inspect %s: %w", node, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return BlockDevice{}, fmt.Errorf("%s is no longer a block device: %w", node, errdefs.ErrFailedPrecondition)
	}
	d := specs.LinuxDevice{Type: "b", Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev))}
	access := allowed(d, deviceRules(spec))
	if without(access, "m") == "" {
		return BlockDevice{}, fmt.Errorf("block device %d:%d: the container's device rules do not allow it: request it as a device, or make the container privileged: %w",
			d.Major, d.Minor, errdefs.ErrFailedPrecondition)
	}
	return BlockDevice{
		HostPath: node,
		Node: Node{
			Path: path.Clean("/" + spec.Mounts[index].Destination), Access: access,
			Mode: st.Mode & 0o777, UID: st.Uid, GID: st.Gid,
		},
	}, nil
}

// allowed returns the access to a device that the rules allow, taken together with those
// for all devices; the last one counts. Without rules there is none, as with runc.
func allowed(d specs.LinuxDevice, rules []specs.LinuxDeviceCgroup) string {
	access := ""
	for _, r := range rules {
		if !isOf(r, d.Type) || !anyNumber(r.Major) && *r.Major != d.Major || !anyNumber(r.Minor) && *r.Minor != d.Minor {
			continue
		}
		access = without(access, accessIn(r))
		if r.Allow {
			access += accessIn(r)
		}
	}
	return without(allAccess, without(allAccess, access))
}
