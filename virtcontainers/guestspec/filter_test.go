package guestspec

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func ptr[T any](v T) *T { return &v }

var (
	ids     = []specs.LinuxIDMapping{{HostID: 1000, Size: 10}}
	userIDs = []specs.LinuxIDMapping{{HostID: 5000, Size: 65536}}
)

// hostSpec has one of everything that must not reach a guest.
func hostSpec() *specs.Spec {
	return &specs.Spec{
		Hostname: "web",
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{Args: []string{"true"}, ApparmorProfile: "p", SelinuxLabel: "l", NoNewPrivileges: true,
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}}},
		Hooks: &specs.Hooks{Prestart: []specs.Hook{{Path: "/host/hook"}}}, // engines still send it
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/etc/hosts", Type: "bind", Source: "/var/lib/pod/hosts", Options: []string{"rbind", "ro"}},
			{Destination: "/data", Source: "/srv", Options: []string{"bind", "ro", "rw"}},
			{Destination: "/dev/shm", Type: "bind", Source: "/run/sandboxes/s1/shm"},
			{Destination: "/dev/kmsg", Type: "bind", Source: "/dev/kmsg"},
			{Destination: "/mapped", Type: "bind", Source: "/srv/m", Options: []string{"rbind", "ro", "rro", "rshared"}, UIDMappings: ids, GIDMappings: ids},
			{Destination: "/idmap", Type: "bind", Source: "/srv/i", Options: []string{"rbind", "ridmap", "rslave"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/kubepods/pod1/c1", MountLabel: "l", UIDMappings: userIDs, GIDMappings: userIDs,
			Devices: []specs.LinuxDevice{{Path: "/dev/sda", Type: "b", Major: 8}},
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace, Path: "/proc/7/ns/pid"},
				{Type: specs.NetworkNamespace, Path: "/var/run/netns/x"}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}, {Type: specs.TimeNamespace}, {Type: specs.UserNamespace, Path: "/proc/7/ns/user"}},
			MaskedPaths: []string{"/proc/kcore"},
			Resources: &specs.LinuxResources{
				CPU:     &specs.LinuxCPU{Quota: ptr(int64(50000)), Period: ptr(uint64(100000)), Cpus: "0-3", Mems: "0"},
				Memory:  &specs.LinuxMemory{Limit: ptr(int64(1 << 28)), Swappiness: ptr(uint64(math.MaxUint64))},
				Pids:    &specs.LinuxPids{Limit: ptr(int64(100))},
				BlockIO: &specs.LinuxBlockIO{Weight: ptr(uint16(100)), ThrottleReadBpsDevice: []specs.LinuxThrottleDevice{{Rate: 1}}},
				Network: &specs.LinuxNetwork{},
			},
		},
	}
}

// none has no volume at /dev/shm and nothing below /dev.
var none = Sources{
	IsVolume: func(string) bool { return false }, IsHosts: func(string) bool { return false }, InGuest: func(string) string { return "" },
}

// listed is HostBinds where no source leads to the guest.
func listed(t *testing.T, spec *specs.Spec, ask Sources) []Bind {
	t.Helper()
	binds, linked := HostBinds(spec, ask)
	if len(linked) != 0 {
		t.Errorf("linked: %v, want none", linked)
	}
	return binds
}

func TestHostBinds(t *testing.T) {
	want := []Bind{
		{Index: 1, Source: "/var/lib/pod/hosts", ReadOnly: true, Recursive: true},
		{Index: 2, Source: "/srv"},
		{Index: 5, Source: "/srv/m", ReadOnly: true, RecursiveReadOnly: true, Recursive: true, Slave: true, IDMap: &IDMap{UIDs: ids, GIDs: ids}},
		{Index: 6, Source: "/srv/i", Recursive: true, Slave: true, IDMap: &IDMap{UIDs: userIDs, GIDs: userIDs, Recursive: true}, KeepsFlags: true},
	}
	if diff := cmp.Diff(want, listed(t, hostSpec(), none)); diff != "" {
		t.Error(diff)
	}
}

// A bind mount with any flag has only its own, as with runc.
func TestKeepsFlags(t *testing.T) {
	for options, want := range map[string]bool{
		"rbind": true, "rbind rprivate": true, "rbind rshared idmap": true, "rbind rro": true,
		"rbind rw": false, "rbind ro": false, "bind exec": false, "rbind rprivate noatime": false,
	} {
		spec := hostSpec()
		spec.Mounts = []specs.Mount{{Destination: "/data", Source: "/srv", Options: strings.Fields(options)}}
		if got := listed(t, spec, none)[0].KeepsFlags; got != want {
			t.Errorf("%s: %v, want %v", options, got, want)
		}
	}
}

// ro and rw are a flag of the mount, rro and rrw are set for it and those below it
// afterwards, as with runc.
func TestReadOnly(t *testing.T) {
	type answer struct{ readOnly, recursive bool }
	for options, want := range map[string]answer{
		"rbind": {}, "ro": {true, false}, "ro rw": {}, "rw ro": {true, false}, "rro": {true, true}, "rro rw": {true, true}, "rw rro": {true, true},
		"rro rrw": {}, "rrw rro": {true, true}, "ro rrw": {}, "rrw ro": {},
	} {
		spec := hostSpec()
		spec.Mounts = []specs.Mount{{Destination: "/data", Source: "/srv", Options: append(strings.Fields(options), "rbind")}}
		b := listed(t, spec, none)[0]
		if got := (answer{b.ReadOnly, b.RecursiveReadOnly}); got != want {
			t.Errorf("%s: %+v, want %+v", options, got, want)
		}
	}
}

// A volume at /dev/shm is the user's, however the path is written.
func TestShm(t *testing.T) {
	spec := hostSpec()
	spec.Mounts = []specs.Mount{
		{Destination: "/dev/shm/", Source: "/run/engine/shm", Options: []string{"rbind"}},
		{Destination: "/dev//shm", Source: "/srv/data", Options: []string{"rbind"}},
	}
	binds := listed(t, spec, Sources{
		IsVolume: func(source string) bool { return source == "/srv/data" }, IsHosts: none.IsHosts, InGuest: none.InGuest,
	})
	if diff := cmp.Diff([]Bind{{Index: 1, Source: "/srv/data", Recursive: true, KeepsFlags: true}}, binds); diff != "" {
		t.Error(diff)
	}
	g, err := Filter(spec, Paths{Rootfs: "/guest/rootfs", Shm: "/guest/shm", Binds: []Placed{{Bind: binds[0], At: "/guest/data"}}}, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	var got specs.Spec
	if err := json.Unmarshal(g.JSON, &got); err != nil {
		t.Fatal(err)
	}
	if got.Mounts[0].Source != "/guest/shm" || got.Mounts[1].Source != "/guest/data" {
		t.Errorf("sources %s and %s", got.Mounts[0].Source, got.Mounts[1].Source)
	}
}

func TestFilter(t *testing.T) {
	host := hostSpec()
	g, err := Filter(host, Paths{Rootfs: "/guest/rootfs", Shm: "/guest/shm", Binds: []Placed{
		{Bind: Bind{Index: 6}, At: "/guest/i", Flags: []string{"nosuid", "noexec"}}, {Bind: Bind{Index: 1}, At: "/guest/hosts", Writable: true},
		{Bind: Bind{Index: 2}, At: "/guest/srv"}, {Bind: Bind{Index: 5}, At: "/guest/m"},
	}}, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(hostSpec(), host); diff != "" {
		t.Errorf("the host's spec was changed: %s", diff)
	}
	want := hostSpec()
	want.Root.Path = "/guest/rootfs"
	want.Process.ApparmorProfile, want.Process.SelinuxLabel = "", ""
	want.Hooks = nil
	want.Mounts[1].Source, want.Mounts[2].Source, want.Mounts[3].Source = "/guest/hosts", "/guest/srv", "/guest/shm"
	want.Mounts[1].Options = []string{"rbind"} // the host refuses writes
	want.Mounts[5].Source, want.Mounts[5].UIDMappings, want.Mounts[5].GIDMappings = "/guest/m", nil, nil
	want.Mounts[6].Source, want.Mounts[6].Options = "/guest/i", []string{"rbind", "rslave", "nosuid", "noexec"}
	want.Linux = &specs.Linux{
		UIDMappings: userIDs, GIDMappings: userIDs,
		Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
			{Type: specs.TimeNamespace}, {Type: specs.UserNamespace}},
		MaskedPaths: []string{"/proc/kcore"},
		Resources: &specs.LinuxResources{
			CPU:     &specs.LinuxCPU{Quota: ptr(int64(50000)), Period: ptr(uint64(100000))},
			Memory:  &specs.LinuxMemory{Limit: ptr(int64(1 << 28))},
			Pids:    &specs.LinuxPids{Limit: ptr(int64(100))},
			BlockIO: &specs.LinuxBlockIO{Weight: ptr(uint16(100))},
		},
	}
	var got specs.Spec
	if err := json.Unmarshal(g.JSON, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Error(diff)
	}
	if !g.SharePID || g.PIDOf != 7 || !g.ShareUser || !g.OwnUTS || len(g.Dropped) != 3 || g.Unconfined {
		t.Errorf("got %v of %d, %v, %v, dropped %q, %v", g.SharePID, g.PIDOf, g.ShareUser, g.OwnUTS, g.Dropped, g.Unconfined)
	}
}

// Devices that a user may miss are named; a FIFO is not one.
func TestFilterDevices(t *testing.T) {
	spec := hostSpec()
	spec.Linux.Devices = nil
	for _, name := range []string{"a", "b", "c", "given", "d", "e", "f", "g"} {
		spec.Linux.Devices = append(spec.Linux.Devices, specs.LinuxDevice{Path: "/dev/" + name, Type: "c"})
	}
	spec.Linux.Devices = append(spec.Linux.Devices, specs.LinuxDevice{Path: "/dev/sda", Type: "b"}, specs.LinuxDevice{Path: "/dev/sdb", Type: "b"})
	fifo := specs.LinuxDevice{Path: "/run/fifo", Type: "p", UID: ptr(uint32(5))}
	spec.Linux.Devices = append(spec.Linux.Devices, fifo)
	linux, g := filteredWith(t, spec, Paths{Devices: map[string]bool{"/dev/given": true}}, Rules{})
	if diff := cmp.Diff([]specs.LinuxDevice{fifo}, linux.Devices); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{
		"devices of the host's: /dev/a, /dev/b, /dev/c, /dev/d, /dev/e, and 2 more",
		"host disks, not given by a request or by privileged_host_disks: /dev/sda, /dev/sdb",
	} {
		if !slices.Contains(g.Dropped, want) {
			t.Errorf("dropped %q, want %q", g.Dropped, want)
		}
	}
}

// Rules for the numbers of the host's disks are not the guest's; a rule for every
// block device is.
func TestFilterDeviceRules(t *testing.T) {
	rule := func(kind string, major, minor *int64) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: major, Minor: minor, Access: "rwm"}
	}
	eight, all := ptr(int64(8)), ptr(int64(-1))
	kept := []specs.LinuxDeviceCgroup{
		{Access: "rwm"}, rule("b", all, all), rule("b", nil, nil), rule("b", nil, all), rule("c", eight, eight), rule("c", all, all),
		{Type: "b", Major: eight, Minor: eight, Access: "w"},
	}
	spec := hostSpec()
	spec.Linux.Resources.Devices = append(slices.Clone(kept), rule("b", eight, eight), rule("b", eight, all), rule("b", eight, nil), rule("b", ptr(int64(9)), eight))
	spec.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/asked", Type: "b", Major: 9, Minor: 8}}
	linux, g := filteredWith(t, spec, Paths{Devices: map[string]bool{"/dev/asked": true}}, Rules{})
	if diff := cmp.Diff(kept, linux.Resources.Devices); diff != "" {
		t.Error(diff)
	}
	// The rule of a device that is given is not missed.
	if want := "cgroup rules for host disks that are not requested as devices: b 8:8, b 8:*, b 8:*"; !slices.Contains(g.Dropped, want) {
		t.Errorf("dropped %q, want %q", g.Dropped, want)
	}
}

func FuzzFilter(f *testing.F) {
	data, _ := json.Marshal(hostSpec())
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var spec specs.Spec
		if json.Unmarshal(data, &spec) != nil || spec.Root == nil || spec.Process == nil || spec.Linux == nil {
			return
		}
		g, err := Filter(&spec, Paths{Rootfs: "/r"}, Rules{NoSeccomp: true})
		if err != nil {
			return
		}
		var out specs.Spec
		if err := json.Unmarshal(g.JSON, &out); err != nil {
			t.Fatal(err)
		}
		if out.Hooks != nil || out.Linux.CgroupsPath != "" || out.Linux.Seccomp != nil || slices.ContainsFunc(out.Linux.Devices, func(d specs.LinuxDevice) bool { return d.Type != "p" }) || out.Root.Path != "/r" {
			t.Error("something of the host's reached the guest's spec")
		}
		for _, ns := range out.Linux.Namespaces {
			if ns.Path != "" {
				t.Errorf("namespace %s has the host's path %s", ns.Type, ns.Path)
			}
		}
	})
}

// Only what is below the kernel's directories is the guest's own.
func TestKernelPaths(t *testing.T) {
	for source, want := range map[string]bool{
		"/proc": true, "/proc/": true, "//sys/fs": true, "/dev/./shm": true, "/etc/../proc/1": true, "/dev/shm/data": false, "/sys/../dev/shm/data": false,
		"/dev/../etc": false, "/proc/..": false, "/process": false, "/": false,
	} {
		ask := Sources{IsHosts: func(source string) bool { return strings.HasSuffix(source, "/data") }}
		if got := ask.isGuests(source); got != want {
			t.Errorf("%s: %t, want %t", source, got, want)
		}
	}
}

// A link to /proc leads to the guest's, a socket's is followed on the host.
func TestLinkToTheGuestsOwn(t *testing.T) {
	spec := hostSpec()
	spec.Mounts = []specs.Mount{
		{Destination: "/data", Source: "/srv/data", Type: "bind", Options: []string{"rbind"}},
		{Destination: "/m", Source: "/etc/mtab", Type: "bind", Options: []string{"rbind", "ro"}},
		{Destination: "/s", Source: "/etc/mtab", Type: "uds"},
		{Destination: "/self", Source: "/proc/self/mounts", Type: "bind", Options: []string{"rbind"}},
	}
	ask := none
	ask.InGuest = func(source string) string {
		if source == "/etc/mtab" {
			return "/proc/self/mounts"
		}
		return ""
	}
	binds, linked := HostBinds(spec, ask)
	if len(binds) != 2 || binds[0].Index != 0 || binds[1].Index != 2 {
		t.Errorf("binds are %+v, want the first and the third", binds)
	}
	if diff := cmp.Diff(map[int]string{1: "/proc/self/mounts"}, linked); diff != "" {
		t.Error(diff)
	}
	g, err := Filter(spec, Paths{Rootfs: "/guest/rootfs", Linked: linked, Binds: []Placed{{Bind: binds[0], At: "/guest/data"}, {Bind: binds[1], At: "/guest/s"}}}, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	var out specs.Spec
	if err := json.Unmarshal(g.JSON, &out); err != nil {
		t.Fatal(err)
	}
	if m := out.Mounts[1]; m.Source != "/proc/self/mounts" || m.Destination != "/m" || !slices.Equal(m.Options, []string{"rbind", "ro"}) {
		t.Errorf("the guest mounts %+v, want its own mounts, read-only", m)
	}
}

// A disk is mounted as one of the container's devices.
func TestMountOfADisk(t *testing.T) {
	spec := hostSpec()
	spec.Mounts = []specs.Mount{
		{Destination: "/disk", Source: "/dev/sdx", Type: "bind", Options: []string{"rbind"}},
		{Destination: "/data", Source: "/srv/data", Type: "bind", Options: []string{"rbind"}},
	}
	binds := listed(t, spec, Sources{IsHosts: func(source string) bool { return source == "/dev/sdx" }, InGuest: none.InGuest})
	if len(binds) != 2 {
		t.Fatalf("%d binds, want both", len(binds))
	}
	g, err := Filter(spec, Paths{Rootfs: "/guest/rootfs", Binds: []Placed{{Bind: binds[0]}, {Bind: binds[1], At: "/guest/data"}}}, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	var out specs.Spec
	if err := json.Unmarshal(g.JSON, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Mounts) != 1 || out.Mounts[0].Source != "/guest/data" {
		t.Errorf("the guest mounts %+v, want only /data", out.Mounts)
	}
}
