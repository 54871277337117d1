package service

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// fakeDisks records mounts and unmounts. The disk at source "N" is the device
// 254:N.
type fakeDisks struct {
	mu     sync.Mutex
	done   []string
	there  map[string]bool // by target
	mount  error
	umount []error // of coming calls
	bytes  uint64
}

func (f *fakeDisks) note(verb string, storages []*api.Storage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range storages {
		f.done = append(f.done, verb+" "+path.Base(s.GetTarget()))
	}
}

func (f *fakeDisks) Mount(_ context.Context, storages []*api.Storage) error {
	f.note("mount", storages)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range storages {
		f.there[s.GetTarget()] = f.mount == nil
	}
	return f.mount
}

func (f *fakeDisks) Mounted(target string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.there[target], nil
}

func (f *fakeDisks) Unmount(storages []*api.Storage) error {
	f.note("unmount", storages)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.umount) == 0 {
		return nil
	}
	err := f.umount[0]
	f.umount = f.umount[1:]
	return err
}

func (f *fakeDisks) FindDisk(_ context.Context, driver, source string) (guest.Disk, error) {
	d := guest.Disk{Node: "/dev/" + driver, Major: 254}
	if _, err := fmt.Sscan(source, &d.Minor); err != nil {
		return d, fmt.Errorf("find disk %q: %w", source, errdefs.ErrNotFound)
	}
	return d, nil
}

// FindChar finds fuse, 10:229, and null, which is common.
func (f *fakeDisks) FindChar(name string, node bool) (guest.Char, error) {
	switch name {
	case "fuse":
		return guest.Char{Node: "/dev/fuse", Major: 10, Minor: 229}, nil
	case "null":
		return guest.Char{Node: "/dev/null", Major: 1, Minor: 3, Common: true}, nil
	}
	return guest.Char{}, fmt.Errorf("find %s: %w", name, errdefs.ErrNotFound)
}

// FindLoop finds loop0, 7:0.
func (f *fakeDisks) FindLoop(number string) (guest.Disk, error) {
	if number == "0" {
		return guest.Disk{Node: "/dev/loop0", Major: 7}, nil
	}
	return guest.Disk{}, fmt.Errorf("find loop%s: %w", number, errdefs.ErrNotFound)
}

// VolumeStats knows what was mounted by Mount. It has as many bytes as GrowVolume said.
func (f *fakeDisks) VolumeStats(target string) (*api.VolumeStatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.there[target] {
		return nil, fmt.Errorf("volume %s: %w", target, errdefs.ErrNotFound)
	}
	return &api.VolumeStatsResponse{TotalBytes: f.bytes}, nil
}

func (f *fakeDisks) GrowVolume(_ context.Context, target string, diskBytes uint64) error {
	if _, err := f.VolumeStats(target); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes = diskBytes
	return nil
}

func diskPod(t *testing.T) (*Pod, *fakeRuntime, *fakeDisks) {
	t.Helper()
	pod, runtime := testPod(t)
	disks := &fakeDisks{there: map[string]bool{}}
	pod.disks = disks
	return pod, runtime, disks
}

func diskRequest(t *testing.T, devices ...*api.Device) *taskapi.CreateTaskRequest {
	t.Helper()
	return &taskapi.CreateTaskRequest{ID: "c", Options: packed(t, &api.ContainerConfig{
		Spec:     []byte(`{"linux":{"devices":[{"path":"/dev/b","type":"b","major":8,"minor":0}]}}`),
		Storages: []*api.Storage{{Driver: "scsi", Target: "/s"}}, Devices: devices,
	})}
}

func TestCreateWithDevices(t *testing.T) {
	pod, runtime, disks := diskPod(t)
	_, err := pod.create(t.Context(), diskRequest(t,
		&api.Device{Path: "/dev/a", Driver: "scsi", Source: "16", Mode: 0o600, Access: "rw"},
		&api.Device{Path: "/dev/b", Driver: "virtio-blk", Source: "32", Mode: 0o640, Uid: 3, Gid: 4, Access: "r"},
	))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	linux := runtime.specs[0].Linux
	for i, d := range linux.Devices {
		got = append(got, fmt.Sprintf("%s %s %d:%d %#o %d:%d %s", d.Path, d.Type, d.Major, d.Minor, *d.FileMode, *d.UID, *d.GID, linux.Resources.Devices[i].Access))
	}
	if diff := cmp.Diff([]string{"/dev/a b 254:16 0600 0:0 rw", "/dev/b b 254:32 0640 3:4 r"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"mount s"}, disks.done); diff != "" {
		t.Error(diff)
	}
}

// A character or loop device that the guest lacks is an error, unless it is optional.
func TestCreateWithCharDevices(t *testing.T) {
	pod, runtime, _ := diskPod(t)
	_, err := pod.create(t.Context(), diskRequest(t,
		&api.Device{Path: "/dev/fuse", Driver: "char", Source: "fuse", Mode: 0o666, Gid: 4, Access: "rw"},
		&api.Device{Path: "/dev/ppp", Driver: "char", Source: "ppp", Mode: 0o666, Access: "rwm", Optional: true},
		&api.Device{Path: "/dev/loop0", Driver: "loop", Source: "0", Mode: 0o660, Access: "rwm", Optional: true},
		&api.Device{Path: "/dev/loop1", Driver: "loop", Source: "1", Mode: 0o660, Access: "rwm", Optional: true},
	))
	if err != nil {
		t.Fatal(err)
	}
	linux := runtime.specs[0].Linux
	i := slices.IndexFunc(linux.Devices, func(d specs.LinuxDevice) bool { return d.Path == "/dev/fuse" })
	if i < 0 || linux.Devices[i].Type != "c" || linux.Devices[i].Major != 10 || linux.Devices[i].Minor != 229 || *linux.Devices[i].GID != 4 {
		t.Errorf("devices: %+v", linux.Devices)
	}
	if d := linux.Devices[len(linux.Devices)-1]; len(linux.Devices) != 3 || d.Path != "/dev/loop0" || d.Type != "b" || d.Major != 7 || d.Minor != 0 {
		t.Errorf("devices: %+v", linux.Devices)
	}
	if r := linux.Resources.Devices; len(r) != 2 || r[0].Type != "c" || *r[0].Minor != 229 || r[0].Access != "rw" {
		t.Errorf("rules: %+v", r)
	}
}

func TestCreateRefusesDevices(t *testing.T) {
	a := &api.Device{Path: "/dev/a", Driver: "scsi", Source: "16", Access: "rw"}
	for _, test := range []struct {
		devices []*api.Device
		want    string
		is      func(error) bool
	}{
		{[]*api.Device{a, a}, "container c: device /dev/a is given twice", errdefs.IsInvalidArgument},
		{[]*api.Device{a, {Path: "a"}}, `container c: path of a device is "a"`, errdefs.IsInvalidArgument},
		{[]*api.Device{{Path: "/dev/ppp", Driver: "char", Source: "ppp", Access: "r"}}, `container c: device /dev/ppp: find ppp`, errdefs.IsNotFound},
		{[]*api.Device{{Path: "/dev/x", Source: "none", Access: "r"}}, `container c: device /dev/x: find disk "none"`, errdefs.IsNotFound},
	} {
		pod, runtime, disks := diskPod(t)
		_, err := pod.create(t.Context(), diskRequest(t, test.devices...))
		if !test.is(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
		if len(runtime.specs) != 0 || len(disks.done) != 0 {
			t.Errorf("%q was done", disks.done)
		}
		if _, err := pod.task("c"); !errdefs.IsNotFound(err) {
			t.Errorf("something is left: %v", err)
		}
	}
}

func TestFailedCreateReleasesStorages(t *testing.T) {
	pod, runtime, disks := diskPod(t)
	runtime.createErr = errors.New("no")
	if _, err := pod.create(t.Context(), diskRequest(t)); !errors.Is(err, runtime.createErr) {
		t.Error(err)
	}
	disks.mount = errors.New("no disk")
	if _, err := pod.create(t.Context(), diskRequest(t)); !errors.Is(err, disks.mount) {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"mount s", "unmount s", "mount s"}, disks.done); diff != "" {
		t.Error(diff)
	}
}

func TestDeleteReleasesStorages(t *testing.T) {
	pod, runtime, disks := diskPod(t)
	if _, err := pod.create(t.Context(), diskRequest(t)); err != nil {
		t.Fatal(err)
	}
	busy := errors.New("busy")
	disks.umount = []error{busy}
	runtime.last.init.exit(3)
	wait(t, pod, "c", "")
	if _, err := pod.delete(t.Context(), "c", ""); !errors.Is(err, busy) {
		t.Errorf("with a disk in use: %v", err)
	}
	if resp, err := pod.delete(t.Context(), "c", ""); err != nil || resp.GetExitStatus() != 3 {
		t.Errorf("again: %v, %v", resp, err)
	}
	if diff := cmp.Diff([]string{"mount s", "unmount s", "unmount s"}, disks.done); diff != "" {
		t.Error(diff)
	}
	if runtime.last.destroyed != 1 {
		t.Errorf("destroyed %d times", runtime.last.destroyed)
	}
	if _, err := pod.task("c"); !errdefs.IsNotFound(err) {
		t.Errorf("something is left: %v", err)
	}
}

// fakeMachine reports what it was told.
type fakeMachine struct {
	asked, have guest.Amount
	err         error
	// late is set once the late devices have drivers, preloaded once these are
	// loaded alone.
	late, preloaded bool
}

func (m *fakeMachine) Online(_ context.Context, want guest.Amount) (guest.Amount, error) {
	m.asked = want
	return m.have, m.err
}

func (m *fakeMachine) LoadLateDrivers() error {
	m.late = true
	return nil
}

func (m *fakeMachine) PreloadLateDrivers() error {
	m.preloaded = true
	return m.err
}

func TestSetResources(t *testing.T) {
	pod, _ := testPod(t)
	machine, nics := &fakeMachine{}, &fakeNetwork{err: errdefs.ErrUnavailable}
	pod.machine, pod.network = machine, nics
	client := api.NewGuestClient(dialPod(t, pod))
	for name, test := range map[string]struct {
		have guest.Amount
		err  error
		ok   bool
	}{
		"all":     {guest.Amount{CPUs: 2, MemoryMiB: 512}, nil, true},
		"less":    {guest.Amount{CPUs: 1, MemoryMiB: 384}, context.DeadlineExceeded, true},
		"nothing": {guest.Amount{}, errdefs.ErrUnavailable, false},
	} {
		machine.have, machine.err = test.have, test.err
		resp, err := client.SetResources(t.Context(), &api.SetResourcesRequest{Cpus: 2, MemoryMib: 512})
		if got := (guest.Amount{CPUs: resp.GetCpus(), MemoryMiB: resp.GetMemoryMib()}); got != test.have || (err == nil) != test.ok {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
		if machine.asked != (guest.Amount{CPUs: 2, MemoryMiB: 512}) {
			t.Errorf("%s: asked for %v", name, machine.asked)
		}
		if test.ok && nics.cpus != test.have.CPUs {
			t.Errorf("%s: the NICs use queues for %d CPUs", name, nics.cpus)
		}
	}
}

func TestLimitContainers(t *testing.T) {
	pod, runtime := testPod(t)
	client := api.NewGuestClient(dialPod(t, pod))
	if _, err := client.LimitContainers(t.Context(), &api.LimitContainersRequest{Memory: 1 << 20, Threads: 77}); err != nil || runtime.limit != 1<<20 || runtime.threads != 77 {
		t.Errorf("%d bytes, %d threads, %v", runtime.limit, runtime.threads, err)
	}
	runtime.limitErr = errdefs.ErrUnavailable
	if _, err := client.LimitContainers(t.Context(), &api.LimitContainersRequest{}); err == nil {
		t.Error("the runtime's error is lost")
	}
}
