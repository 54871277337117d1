package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

func char(path string, major, minor int64) specs.LinuxDevice {
	return specs.LinuxDevice{Path: path, Type: "c", Major: major, Minor: minor}
}

// charHost is a host that names the given character devices.
func charHost(t *testing.T, names map[string]string) hostDevices {
	t.Helper()
	h := hostDevices{sys: t.TempDir(), dev: t.TempDir()}
	for number, name := range names {
		dir := filepath.Join(h.sys, "dev/char", number)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "uevent"), []byte("DEVNAME="+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func TestCharDevices(t *testing.T) {
	h := charHost(t, map[string]string{"10:122": "vsock", "10:229": "fuse"})
	blank := char("/dev/blank", 1, 5)
	blank.FileMode, blank.UID, blank.GID = ptr(0o640|os.ModeDevice), ptr(uint32(5)), ptr(uint32(6))
	tun := char("/dev/net/tun", 10, 200) // the host lacks the driver
	tun.Type = "u"
	deny := specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}
	got, err := h.chars(withDevices([]specs.LinuxDeviceCgroup{deny, rule(true, "c", 10, 229, "rw"), rule(false, "c", 1, 3, "rwm")},
		char("/dev/fuse", 10, 229), blank, tun, char("/dev/vsock", 10, 122), block("/dev/sda", 8, 0), char("/dev/null", 1, 3)))
	if err != nil {
		t.Fatal(err)
	}
	want := []CharDevice{
		{Node{Path: "/dev/fuse", Mode: 0o666, Access: "rw"}, "fuse"},
		{Node{Path: "/dev/blank", Mode: 0o640, UID: 5, GID: 6, Access: "rwm"}, "zero"},
		{Node{Path: "/dev/net/tun", Mode: 0o666, Access: "rwm"}, "net/tun"},
		{Node{Path: "/dev/vsock", Mode: 0o666, Access: "rwm"}, "vsock"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A device that a guest cannot have is refused when it was requested, and left
// out when the spec lists all of the host's.
func TestCharDevicesThatNoGuestHas(t *testing.T) {
	h := charHost(t, map[string]string{"188:0": "ttyUSB0", "10:122": "something"})
	for _, d := range []specs.LinuxDevice{char("/dev/ttyUSB0", 188, 0), char("/dev/mem", 1, 1), char("/dev/console", 5, 1), char("/dev/vsock", 10, 122)} {
		_, err := h.chars(withDevices(nil, char("/dev/fuse", 10, 229), d))
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "device "+d.Path+", character device") {
			t.Errorf("%s: %v", d.Path, err)
		}
		got, err := h.chars(withDevices([]specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}, d, null, char("/dev/fuse", 10, 229), char("/dev/fuse", 1, 3)))
		want := []CharDevice{
			{Node{Path: "/dev/null", Mode: 0o666, Access: "rwm", Optional: true}, "null"},
			{Node{Path: "/dev/fuse", Mode: 0o666, Access: "rwm", Optional: true}, "fuse"},
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s of a privileged container: %v\n%s", d.Path, err, diff)
		}
	}
}

// A privileged container whose spec does not list the host's devices gets those of the
// guest, beside what it has requested.
func TestCharDevicesWithoutList(t *testing.T) {
	h := charHost(t, nil)
	fuse := char("/dev/fuse", 10, 229)
	fuse.FileMode = ptr(os.FileMode(0o600))
	all := withDevices([]specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}, fuse)
	devices, err := h.chars(all)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range devices {
		if !d.Optional || d.Access != "rwm" || d.Path != "/dev/"+d.Name {
			t.Errorf("%+v", d)
		}
		got[d.Name] += fmt.Sprintf("%o", d.Mode)
	}
	for name, want := range map[string]string{"fuse": "600", "net/tun": "666", "loop-control": "660", "kmsg": "644", "null": "", "vsock": ""} {
		if got[name] != want {
			t.Errorf("%s has the mode %q, want %q", name, got[name], want)
		}
	}
}

// A device of no known kind is refused, as with runc, in a privileged container
// too: else it would be left out silently.
func TestDevicesOfUnknownKinds(t *testing.T) {
	h := charHost(t, nil)
	for _, kind := range []string{"z", "", "C"} {
		d := char("/dev/mine", 1, 5)
		d.Type = kind
		for _, rules := range [][]specs.LinuxDeviceCgroup{nil, {{Allow: true, Access: "rwm"}}} {
			_, err := h.chars(withDevices(rules, d))
			if want := fmt.Sprintf("device /dev/mine is of type %q, want c, u, b or p", kind); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	fifo := specs.LinuxDevice{Path: "/run/fifo", Type: "p"}
	if got, err := h.chars(withDevices(nil, fifo, block("/dev/sda", 8, 0))); err != nil || len(got) > 0 {
		t.Errorf("a FIFO and a disk: %v, %v", got, err)
	}
}

// The page has every device, and no other.
func TestCompatPageListsCharDevices(t *testing.T) {
	page, err := os.ReadFile("../../docs/compat.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "<!-- char devices: begin -->")
	list, _, _ = strings.Cut(list, "<!-- char devices: end -->")
	var names []string
	for _, d := range api.CharDevices {
		names = append(names, "`"+d.Name+"`")
	}
	if diff := cmp.Diff(strings.Join(names, " "), strings.Join(strings.Fields(strings.ReplaceAll(list, ",", " ")), " ")); diff != "" {
		t.Error(diff)
	}
}
