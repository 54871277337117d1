package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// fakeDevices is a host that has the given block devices, by number.
func fakeDevices(t *testing.T, names map[string]string) hostDevices {
	t.Helper()
	h := hostDevices{sys: t.TempDir(), dev: t.TempDir()}
	for number, name := range names {
		dir := filepath.Join(h.sys, "dev/block", number)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "uevent"), []byte("MAJOR=x\nDEVNAME="+name+"\nDEVTYPE=disk\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err != nil {
			t.Fatal(err)
		}
		node := filepath.Join(h.dev, name)
		if err := os.MkdirAll(filepath.Dir(node), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
			t.Skip("needs to make device nodes:", err)
		}
	}
	return h
}

// null is in each list of all of the host's devices.
var null = specs.LinuxDevice{Path: "/dev/null", Type: "c", Major: 1, Minor: 3}

func ptr[T any](v T) *T { return &v }

func block(path string, major, minor int64) specs.LinuxDevice {
	return specs.LinuxDevice{Path: path, Type: "b", Major: major, Minor: minor}
}

func rule(allow bool, kind string, major, minor int64, access string) specs.LinuxDeviceCgroup {
	return specs.LinuxDeviceCgroup{Allow: allow, Type: kind, Major: &major, Minor: &minor, Access: access}
}

func withDevices(rules []specs.LinuxDeviceCgroup, devices ...specs.LinuxDevice) *specs.Spec {
	return &specs.Spec{Linux: &specs.Linux{Devices: devices, Resources: &specs.LinuxResources{Devices: rules}}}
}

func TestBlockDevices(t *testing.T) {
	h := fakeDevices(t, map[string]string{"7:3": "loop3", "254:16": "vd/b"})
	loop := block("/dev/data", 7, 3)
	loop.FileMode, loop.UID, loop.GID = ptr(0o640|os.ModeDevice), ptr(uint32(5)), ptr(uint32(6))
	spec := withDevices([]specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}, rule(true, "b", 7, 3, "r")},
		null, loop, block("/dev/other", 254, 16))
	got, err := h.list(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []BlockDevice{
		{Node{Path: "/dev/data", Mode: 0o640, UID: 5, GID: 6, Access: "r"}, h.dev + "/loop3"},
		{Node{Path: "/dev/other", Mode: 0o666, Access: "rwm"}, h.dev + "/vd/b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !got[0].ReadOnly() || got[1].ReadOnly() {
		t.Error("which of them is read-only")
	}
	spec.Linux.Resources = nil
	if got, err := h.list(spec, nil); err != nil || len(got) != 2 || got[0].Access != "rwm" {
		t.Errorf("without rules: %+v, %v", got, err)
	}
}

func TestBlockDeviceAccess(t *testing.T) {
	const all = -1
	deny := specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}
	h := fakeDevices(t, map[string]string{"7:3": "loop3"})
	for _, test := range []struct {
		name  string
		rules []specs.LinuxDeviceCgroup
		want  string
	}{
		{"none", nil, "rwm"},
		{"not this one", []specs.LinuxDeviceCgroup{deny, rule(true, "b", 7, 4, "r"), rule(true, "c", 7, 3, "r"), rule(true, "b", 8, all, "r")}, "rwm"},
		{"any may be made", []specs.LinuxDeviceCgroup{deny, rule(true, "b", all, all, "m")}, "rwm"},
		{"in another order", []specs.LinuxDeviceCgroup{deny, rule(true, "b", 7, 3, "mwr")}, "rwm"},
		{"all of the driver's", []specs.LinuxDeviceCgroup{deny, rule(true, "b", 7, all, "rw")}, "rw"},
		{"of any type", []specs.LinuxDeviceCgroup{deny, rule(true, "a", 7, 3, "rm")}, "rm"},
		{"more later", []specs.LinuxDeviceCgroup{deny, rule(true, "b", 7, 3, "r"), rule(true, "b", 7, 3, "rw")}, "rw"},
		{"less later", []specs.LinuxDeviceCgroup{deny, rule(true, "b", 7, 3, ""), rule(false, "b", 7, 3, "wm")}, "r"},
		{"nothing", []specs.LinuxDeviceCgroup{rule(true, "b", 7, 3, "rwm"), rule(false, "b", 7, all, "rwm")}, ""},
		{"everything", []specs.LinuxDeviceCgroup{deny, {Allow: true, Access: "rwm"}}, ""},
		{"everything, by numbers", []specs.LinuxDeviceCgroup{deny, rule(true, "a", all, all, "mrw")}, ""},
		{"everything, and the number", []specs.LinuxDeviceCgroup{deny, {Allow: true}, rule(true, "b", 7, 3, "r")}, "rwm"},
		{"everything, and the number not", []specs.LinuxDeviceCgroup{{Allow: true}, rule(false, "b", 7, 3, "r")}, ""},
		{"everything, and another number", []specs.LinuxDeviceCgroup{{Allow: true}, rule(true, "b", 7, 4, "r"), rule(true, "b", 7, all, "r")}, ""},
		{"everything, then nothing", []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}, deny, rule(true, "b", 7, 3, "r")}, "r"},
		{"everything may be read", []specs.LinuxDeviceCgroup{deny, {Allow: true, Access: "r"}}, "rwm"},
	} {
		got, err := h.list(withDevices(test.rules, null, block(h.dev+"/loop3", 7, 3)), nil)
		access := ""
		if len(got) == 1 {
			access = got[0].Access
		}
		if err != nil || access != test.want {
			t.Errorf("%s: %+v, %v, want %q", test.name, got, err, test.want)
		}
	}
}

// A privileged container gets the disks that were requested individually, and
// those of its list that the patterns choose.
func TestBlockDevicesOfPrivileged(t *testing.T) {
	h := fakeDevices(t, map[string]string{"7:3": "loop3", "7:4": "loop4", "7:5": "part1", "7:6": "nameless", "254:16": "vd/b"})
	byID := filepath.Join(t.TempDir(), "id-1")
	err := errors.Join(os.Symlink(h.dev+"/vd/b", byID), os.WriteFile(filepath.Join(h.sys, "dev/block/7:5/partition"), []byte("1\n"), 0o600),
		os.RemoveAll(filepath.Join(h.sys, "dev/block/7:6")))
	if err != nil {
		t.Fatal(err)
	}
	everything := []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	for _, test := range []struct {
		name      string
		patterns  []string
		requested []specs.LinuxDevice
		want      string
	}{
		{"no pattern", nil, nil, ""},
		{"none matches", []string{h.dev + "/sd*", h.dev + "/loop"}, nil, ""},
		{"a path", []string{h.dev + "/loop4"}, nil, "loop4?"},
		{"a pattern", []string{h.dev + "/sd*", h.dev + "/loop[0-9]"}, nil, "loop3? loop4?"},
		{"a link", []string{filepath.Dir(byID) + "/id-*"}, nil, "b?"},
		{"a directory", []string{h.dev + "/vd"}, nil, ""},
		{"at another path", nil, []specs.LinuxDevice{block("/data/disk", 7, 3)}, "loop3"},
		{"twice", nil, []specs.LinuxDevice{block(h.dev+"/loop3", 7, 3)}, "loop3"},
		{"at a path that is gone, with another number now", nil, []specs.LinuxDevice{block(h.dev+"/gone", 8, 16)}, ""},
		{"at another disk's path", nil, []specs.LinuxDevice{block(h.dev+"/vd/b", 7, 3)}, ""},
		{"partitions", []string{h.dev + "/part*"}, []specs.LinuxDevice{block(h.dev+"/part1", 7, 5)}, ""},
		{"a partition", []string{h.dev + "/part1"}, []specs.LinuxDevice{block(h.dev+"/part1", 7, 5)}, "part1?"},
		{"one that vanishes", []string{h.dev + "/nameless"}, []specs.LinuxDevice{block(h.dev+"/nameless", 7, 6)}, ""},
		{"both", []string{h.dev + "/loop*"}, []specs.LinuxDevice{block(h.dev+"/loop3", 7, 3)}, "loop3 loop4?"},
	} {
		devices := slices.Concat(test.requested, []specs.LinuxDevice{
			null, block(h.dev+"/loop3", 7, 3), block(h.dev+"/loop4", 7, 4), block(h.dev+"/vd/b", 254, 16),
		})
		got, err := h.list(withDevices(everything, devices...), test.patterns)
		var names []string
		for _, b := range got {
			name := filepath.Base(b.HostPath)
			if b.Optional {
				name += "?"
			}
			names = append(names, name)
			if b.Access != "rwm" {
				t.Errorf("%s: %+v", test.name, b)
			}
		}
		if err != nil || strings.Join(names, " ") != test.want {
			t.Errorf("%s: %q, %v, want %q", test.name, names, err, test.want)
		}
	}
}

// A container that may use every device, but whose spec does not list all of the
// host's, has requested those in its spec
// (privileged_without_host_devices_all_devices_allowed).
func TestBlockDevicesWithoutList(t *testing.T) {
	h := fakeDevices(t, map[string]string{"7:3": "loop3"})
	got, err := h.list(withDevices([]specs.LinuxDeviceCgroup{{Allow: true}}, block(h.dev+"/loop3", 7, 3)), nil)
	if err != nil || len(got) != 1 || got[0].Optional || got[0].Access != "rwm" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestBlockDeviceThatIsNotThere(t *testing.T) {
	h := fakeDevices(t, map[string]string{"7:3": "loop3", "7:4": "loop4", "7:5": "loop5"})
	at := filepath.Join(h.dev, "loop5")
	for _, err := range []error{
		os.Remove(filepath.Join(h.dev, "loop4")), os.Remove(at), unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 3))),
		os.WriteFile(filepath.Join(h.sys, "dev/block/7:3/uevent"), []byte("MAJOR=7\n"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		minor int64
		want  string
	}{
		{3, "its uevent file has no name"}, {4, "loop4 nor /none/x is a node of it"}, {5, "loop5 nor /none/x is a node of it"}, {6, "the host has no such device"},
		{-1, "the host has no such device"},
	} {
		_, err := h.list(withDevices(nil, block("/none/x", 7, test.minor)), nil)
		if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "/none/x") {
			t.Errorf("minor %d: %v, want %q", test.minor, err, test.want)
		}
	}
	// The path in the container may be the only node.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := unix.Mknod(moved, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 4))); err != nil {
		t.Fatal(err)
	}
	if got, err := h.list(withDevices(nil, block(moved, 7, 4)), nil); err != nil || len(got) != 1 || got[0].HostPath != moved {
		t.Errorf("got %+v, %v", got, err)
	}
}

// This host's own devices, if it has a loop device.
func TestBlockDevicesOfThisHost(t *testing.T) {
	if _, err := os.Stat("/sys/dev/block/7:0"); err != nil {
		t.Skip("no loop device:", err)
	}
	got, err := BlockDevices(withDevices(nil, block("/dev/x", 7, 0)), nil)
	if err != nil || len(got) != 1 || got[0].HostPath != "/dev/loop0" {
		t.Errorf("got %+v, %v", got, err)
	}
}
