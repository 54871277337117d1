package container

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// dropBindData removes file system options from bind mounts, in place, and
// returns them for the log. mount(2) ignores them on a bind mount; libcontainer
// refuses the container (configs/validate, checkBindOptions). iSulad sets size= on
// the bind mount of every container's /dev/shm.
func dropBindData(mounts []specs.Mount) (dropped []string) {
	known := specconv.KnownMountOptions()
	for i := range mounts {
		m := &mounts[i]
		if !isBind(m) {
			continue
		}
		var kept []string
		for _, option := range m.Options {
			if slices.Contains(known, option) {
				kept = append(kept, option)
			} else {
				dropped = append(dropped, fmt.Sprintf("%q at %s", option, m.Destination))
			}
		}
		m.Options = kept
	}
	return dropped
}

// accessPodVolumes has the kernel mount the pod's volumes in the share, which it does
// when they are first accessed: in the agent's mount namespace, of which each
// container's is a copy. Otherwise the kernel would mount a separate file system in
// each, with separate sockets and locks.
func accessPodVolumes(mounts []specs.Mount) {
	for i := range mounts {
		if !strings.HasPrefix(mounts[i].Source, api.GuestPodVolumesDir+"/") {
			continue
		}
		// An error is the mount's, later.
		if fd, err := unix.Open(mounts[i].Source, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(fd)
		}
	}
}

// isBind reports whether libcontainer takes m for a bind mount
// (specconv, createLibcontainerMount).
func isBind(m *specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}
