package bundle

import (
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A mount of a disk grants what the container's device rules do.
func TestMountedDevice(t *testing.T) {
	node := filepath.Join(t.TempDir(), "disk")
	if err := unix.Mknod(node, unix.S_IFBLK|0o640, int(unix.Mkdev(7, 99))); err != nil {
		t.Skip("needs to make device nodes:", err)
	}
	if err := unix.Chown(node, 5, 6); err != nil {
		t.Fatal(err)
	}
	none := specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}
	for name, tt := range map[string]struct {
		rules []specs.LinuxDeviceCgroup
		want  string
	}{
		"no rule":          {nil, ""},
		"another's":        {[]specs.LinuxDeviceCgroup{none, rule(true, "b", 7, 98, "rwm"), rule(true, "c", 7, 99, "rwm")}, ""},
		"only mknod":       {[]specs.LinuxDeviceCgroup{none, rule(true, "b", -1, -1, "m")}, ""},
		"its own":          {[]specs.LinuxDeviceCgroup{none, rule(true, "b", 7, 99, "r")}, "r"},
		"its driver's":     {[]specs.LinuxDeviceCgroup{none, rule(true, "b", 7, -1, "rw")}, "rw"},
		"all":              {[]specs.LinuxDeviceCgroup{none, {Allow: true, Access: "rwm"}}, "rwm"},
		"all but it":       {[]specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}, rule(false, "b", 7, 99, "rwm")}, ""},
		"all, it for read": {[]specs.LinuxDeviceCgroup{{Allow: true, Type: "a"}, rule(false, "b", 7, 99, "w")}, "rm"},
	} {
		spec := withDevices(tt.rules)
		spec.Mounts = []specs.Mount{{Destination: "/tmp", Type: "tmpfs"}, {Destination: "/data/../disk", Source: node, Type: "bind"}}
		got, err := MountedDevice(spec, 1, node)
		if tt.want == "" {
			if !errdefs.IsFailedPrecondition(err) {
				t.Errorf("%s: %+v, %v; want it refused", name, got, err)
			}
			continue
		}
		want := BlockDevice{Node{Path: "/disk", Mode: 0o640, UID: 5, GID: 6, Access: tt.want}, node}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// What was a disk when it was looked at may be something else.
func TestMountedDeviceIsGone(t *testing.T) {
	dir := t.TempDir()
	spec := withDevices([]specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}})
	spec.Mounts = []specs.Mount{{Destination: "/a", Source: dir}, {Destination: "/b", Source: filepath.Join(dir, "none")}}
	for i := range spec.Mounts {
		if got, err := MountedDevice(spec, i, spec.Mounts[i].Source); err == nil {
			t.Errorf("%s: %+v", spec.Mounts[i].Source, got)
		}
	}
}
