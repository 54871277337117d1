package guestspec

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// The host's devices and directories are not taken for the guest's of the same
// name, and only a bind mount's owners are mapped.
func TestRefusedMounts(t *testing.T) {
	for _, test := range []struct {
		mount specs.Mount
		want  string // in the error
	}{
		{specs.Mount{Type: "ext4", Source: "/dev/vda"}, "type ext4 with the source /dev/vda, which is the host's"},
		{specs.Mount{Type: "xfs", Source: "/srv/disk.img", Options: []string{"ro"}}, "/srv/disk.img"},
		{specs.Mount{Type: "overlay", Source: "overlay", Options: []string{"lowerdir=/etc"}}, "an overlay of the host's directories"},
		{specs.Mount{Type: "tmpfs", Options: []string{"idmap"}}, "owners of type tmpfs mapped"},
		{specs.Mount{Type: "proc", UIDMappings: []specs.LinuxIDMapping{{Size: 1}}}, "owners of type proc mapped"},
		{specs.Mount{Source: "/srv", Options: []string{"bind", "idmap"}}, ""},
		{specs.Mount{Type: "tmpfs", Source: "/run"}, ""},
		{specs.Mount{Type: "cgroup", Source: "cgroup"}, ""},
		{specs.Mount{Type: "nfs", Source: "server:/srv"}, ""},
		{specs.Mount{Type: "cifs", Source: "//server/share"}, ""},
		{specs.Mount{Type: "none", Source: "/srv", Options: []string{"rbind"}}, ""},
		{specs.Mount{Type: "uds", Source: "/run/x.sock"}, ""},
	} {
		spec := hostSpec()
		test.mount.Destination = "/data"
		spec.Mounts = append(spec.Mounts, test.mount)
		err := Check(spec, Rules{})
		if (err == nil) != (test.want == "") {
			t.Errorf("%+v: %v", test.mount, err)
		}
		if err != nil && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "mounts: /data ")) {
			t.Errorf("%+v: %v, want %q", test.mount, err, test.want)
		}
	}
}
