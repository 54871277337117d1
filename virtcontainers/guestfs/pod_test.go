package guestfs

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/config"
)

// A configuration that the share cannot support is refused.
func TestOpenRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*config.Config)
		want string
	}{
		{"binds without a share", func(c *config.Config) {
			c.Hypervisor.SharedFS = config.SharedFSNone
			c.Runtime.SandboxBindMounts = []string{"/data"}
		}, "sandbox_bind_mounts"},
		{"a daemon's arguments without a daemon", func(c *config.Config) {
			c.Hypervisor.VirtioFS.ExtraArgs = []string{"-d"}
		}, "virtio_fs_daemon is empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := new(config.Config)
			test.set(c)
			_, err := Open(t.Context(), Options{ID: "pod", Scratch: t.TempDir(), Config: c})
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an invalid argument that names %s", err, test.want)
			}
		})
	}
}
