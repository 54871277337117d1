package container

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestAddDevice(t *testing.T) {
	deny := specs.LinuxDeviceCgroup{Access: "rwm"}
	rule := func(major, minor int64) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: true, Type: "b", Major: &major, Minor: &minor, Access: "rwm"}
	}
	spec := &specs.Spec{Linux: &specs.Linux{
		Devices: []specs.LinuxDevice{
			{Path: "/dev/sdb", Type: "b", Major: 8, Minor: 16}, {Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229},
			{Path: "/dev//sdb", Type: "b", Major: 8, Minor: 32},
		},
		Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{deny, rule(8, 16), rule(8, 48), rule(8, 32)}},
	}}
	err := AddDevice(spec, Device{Type: "b", Path: "/dev/sdb", Mode: 0o640, UID: 1, GID: 2, Access: "rw", Major: 254, Minor: 0})
	if err != nil {
		t.Fatal(err)
	}
	given := rule(254, 0)
	given.Access = "rw"
	want := &specs.Linux{
		Devices: []specs.LinuxDevice{
			{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229},
			{Path: "/dev/sdb", Type: "b", Major: 254, FileMode: ptr(fs.FileMode(0o640)), UID: ptr(uint32(1)), GID: ptr(uint32(2))},
		},
		Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{deny, rule(8, 48), given}},
	}
	if diff := cmp.Diff(want, spec.Linux); diff != "" {
		t.Error(diff)
	}
}

func TestAddDeviceToAnEmptySpec(t *testing.T) {
	spec := &specs.Spec{}
	if err := AddDevice(spec, Device{Type: "b", Path: "/d", Access: "r"}); err != nil {
		t.Fatal(err)
	}
	if len(spec.Linux.Devices) != 1 || len(spec.Linux.Resources.Devices) != 1 {
		t.Errorf("%+v", spec.Linux)
	}
}

func TestAddDeviceInAUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	node := filepath.Join(t.TempDir(), "vda")
	if err := os.WriteFile(node, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mappings := []specs.LinuxIDMapping{{ContainerID: 10, HostID: 1000, Size: 1}, {ContainerID: 0, HostID: 100000, Size: 10}}
	spec := &specs.Spec{Linux: &specs.Linux{
		Namespaces:  []specs.LinuxNamespace{{Type: specs.UserNamespace}},
		UIDMappings: mappings, GIDMappings: mappings,
	}}
	d := Device{Type: "b", Path: "/dev/x", Node: node, Mode: 0o640, UID: 9, GID: 10, Access: "rw", Major: 254, Minor: 16}
	if err := AddDevice(spec, d); err != nil {
		t.Fatal(err)
	}
	want := []specs.Mount{{Destination: "/dev/x", Type: "bind", Source: node, Options: []string{"bind", "nosuid", "noexec"}}}
	if diff := cmp.Diff(want, spec.Mounts); diff != "" || len(spec.Linux.Devices) != 0 || len(spec.Linux.Resources.Devices) != 1 {
		t.Errorf("%s%+v", diff, spec.Linux)
	}
	var st unix.Stat_t
	if err := unix.Stat(node, &st); err != nil || st.Uid != 100009 || st.Gid != 1000 || st.Mode&0o7777 != 0o640 {
		t.Errorf("%d:%d %#o, %v", st.Uid, st.Gid, st.Mode, err)
	}
	d.GID = 11
	if err := AddDevice(spec, d); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "device /dev/x: group 11 is not one of its user namespace") {
		t.Error(err)
	}
}

// A mounted device covers what the container's root file system has at its path.
func TestAddMountedDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	node := filepath.Join(t.TempDir(), "vda")
	if err := os.WriteFile(node, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := &specs.Spec{Linux: &specs.Linux{}}
	d := Device{Mounted: true, Type: "b", Path: "/disk", Node: node, Mode: 0o640, UID: 9, GID: 10, Access: "r", Major: 254, Minor: 16}
	if err := AddDevice(spec, d); err != nil {
		t.Fatal(err)
	}
	want := []specs.Mount{{Destination: "/disk", Type: "bind", Source: node, Options: []string{"bind", "nosuid", "noexec"}}}
	if diff := cmp.Diff(want, spec.Mounts); diff != "" || len(spec.Linux.Devices) != 0 || len(spec.Linux.Resources.Devices) != 1 {
		t.Errorf("%s%+v", diff, spec.Linux)
	}
	var st unix.Stat_t
	if err := unix.Stat(node, &st); err != nil || st.Mode&0o777 != 0o640 || st.Uid != 9 || st.Gid != 10 {
		t.Errorf("the guest's node has mode %o, owner %d:%d, %v", st.Mode, st.Uid, st.Gid, err)
	}
}

func TestAddDeviceRefuses(t *testing.T) {
	for want, d := range map[string]Device{
		`path of a device is "dev/x"`:     {Path: "dev/x", Access: "r"},
		`path of a device is "/dev/../x"`: {Path: "/dev/../x", Access: "r"},
		`path of a device is "/"`:         {Path: "/", Access: "r"},
		`path of a device is ""`:          {Access: "r"},
		"mode of device /x is 060644":     {Path: "/x", Mode: 0o60644, Access: "r"},
		`access to device /x is "rx"`:     {Path: "/x", Access: "rx"},
		`access to device /x is ""`:       {Path: "/x"},
	} {
		spec := &specs.Spec{}
		if err := AddDevice(spec, d); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) || spec.Linux != nil {
			t.Errorf("%+v: %v, want %q", d, err, want)
		}
	}
}

// FuzzAddDevice feeds what a host may send as a spec and a device.
func FuzzAddDevice(f *testing.F) {
	f.Add([]byte(`{"linux":{"devices":[{"path":"/dev/sdb","type":"b"}],"resources":{"devices":[{"allow":true,"type":"b","major":0,"minor":0}]}}}`), "/dev/sdb", "rw", uint32(0o600))
	f.Add([]byte(`{}`), "dev", "", uint32(1<<31))
	f.Fuzz(func(t *testing.T, data []byte, at, access string, mode uint32) {
		var spec specs.Spec
		if json.Unmarshal(data, &spec) != nil {
			return
		}
		if AddDevice(&spec, Device{Type: "b", Path: at, Access: access, Mode: mode, Major: 254}) != nil {
			return
		}
		found := 0
		for _, d := range spec.Linux.Devices {
			if path.Clean(d.Path) == at {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d devices at %s", found, at)
		}
	})
}
