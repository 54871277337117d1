package guestfs

import (
	"os"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/internal/looptest"
	"github.com/katabox/katabox/virtcontainers/config"
)

// requesting is a request of a container with a root file system on a disk, and with
// this block device, mounted or listed as a device.
func requesting(t *testing.T, dev *os.File, mounted bool) Request {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(dev.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	req := request(t)
	req.Bundle.Spec.Linux.Resources = &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: true, Type: "b", Major: &major, Minor: &minor, Access: "rwm"}},
	}
	req.Bundle.Spec.Mounts = nil // A copy's watch (inotify) would keep a synctest's clock from going on.
	if mounted {
		req.Bundle.Spec.Mounts = []specs.Mount{{Destination: "/disk", Type: "bind", Source: dev.Name(), Options: []string{"bind", "rw"}}}
		return req
	}
	req.Bundle.Spec.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/data", Type: "b", Major: major, Minor: minor}}
	return req
}

// kept makes a container's files, which are released at the test's end.
func kept(t *testing.T, p *Pod, req Request) *Container {
	t.Helper()
	c := p.Container(req)
	if err := do(t, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// disksOf returns the machine's two disks: that of the root file system, a file, and the
// block device.
func disksOf(t *testing.T, vm *fake.VM) (image, device hypervisor.Disk) {
	t.Helper()
	all := vm.Devices()
	if len(all) != 2 {
		t.Fatalf("devices %v, want two disks", all)
	}
	return all[0].(hypervisor.Disk), all[1].(hypervisor.Disk)
}

// A block device that a container gets is read and written without the host's page
// cache, in which others that have the device would not see it; a file is not.
func TestDeviceBypassesPageCache(t *testing.T) {
	for _, test := range []struct {
		name    string
		mounted bool
		cache   config.BlockCache
		want    hypervisor.DiskCache
	}{
		{name: "device", want: hypervisor.DiskCache{Direct: true}},
		{name: "mounted", mounted: true, want: hypervisor.DiskCache{Direct: true}},
		{name: "cached by the configuration", cache: config.BlockCache{Set: true, NoFlush: true}, want: hypervisor.DiskCache{NoFlush: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, vm, _ := newPod(t)
			p.opts.Config.Hypervisor.BlockCache = test.cache
			p.makeDisks()
			kept(t, p, requesting(t, looptest.Over(t, file(t, "backing"), 0), test.mounted))
			image, device := disksOf(t, vm)
			if device.Cache != test.want {
				t.Errorf("the device's cache is %+v, want %+v", device.Cache, test.want)
			}
			if image.Cache.Direct {
				t.Error("the image bypasses the page cache")
			}
		})
	}
}
