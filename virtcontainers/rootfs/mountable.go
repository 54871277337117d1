package rootfs

import (
	"slices"
	"strings"

	"github.com/containerd/containerd/api/types"
)

// Mountable tells whether the host could mount these: a type with a prefix
// ("format/overlay") is a template that containerd's mount manager would have
// filled in, had this runtime not said that it does so itself.
func Mountable(mounts []*types.Mount) bool {
	return !slices.ContainsFunc(mounts, func(m *types.Mount) bool { return strings.Contains(m.Type, "/") })
}
