package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// privileged is what an engine makes of a privileged container: every device of
// the host is in its spec, and may be used.
var privileged = oci.Compose(oci.WithHostDevices, oci.WithAllDevicesAllowed)

// A privileged container gets none of the disks in its list, and those that it
// requests individually.
func TestPrivilegedDisks(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		listed, requested, moved := newHostDisk(t, d, "listed"), newHostDisk(t, d, "requested"), newHostDisk(t, d, "moved")
		mark := d.LogSize()
		c := with(ctx, t, pod, privileged)
		wantBlockDevices(ctx, t, c, 0)
		wantNoDisk(ctx, t, c, listed.dev.Name())
		awaitLog(ctx, t, d, mark, "host disks, not given by a request or by privileged_host_disks")
		// As containerd's CRI does it: requested ones first, and then no rule for them.
		c = with(ctx, t, pod, requested.as(requested.dev.Name(), "rwm"), moved.as("/data/disk", "r"), privileged)
		wantBlockDevices(ctx, t, c, 2)
		for path, want := range map[string]string{requested.dev.Name(): "requested\n", "/data/disk": "moved\n"} {
			if got := readDisk(ctx, t, c, path); got != want {
				t.Errorf("the guest reads %q from %s, want %q", got, path, want)
			}
		}
		// With privileged_without_host_devices_all_devices_allowed.
		c = with(ctx, t, pod, listed.as(listed.dev.Name(), "rwm"), oci.WithAllDevicesAllowed)
		wantBlockDevices(ctx, t, c, 3)
		if got := readDisk(ctx, t, c, listed.dev.Name()); got != "listed\n" {
			t.Errorf("without the list the guest reads %q", got)
		}
	})
}

// With privileged_host_disks a privileged container gets the disks that match,
// unless they are in use.
func TestPrivilegedHostDisks(t *testing.T) {
	needVM(t)
	newestOwn(t, func(*harness.Options) {}, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		given, used, other := newHostDisk(t, d, "given"), newHostDisk(t, d, "used"), newHostDisk(t, d, "other")
		hold(t, used)
		link := fmt.Sprintf("/dev/katabox-test-%d", os.Getpid())
		if err := os.Symlink(given.dev.Name(), link); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(link) })
		setDisks(t, d, link[:len(link)-1]+"[0-9]", used.dev.Name())
		pod := newPod(ctx, t, d)
		mark := d.LogSize()
		c := with(ctx, t, pod, privileged)
		wantBlockDevices(ctx, t, c, 1)
		wantNoDisk(ctx, t, c, used.dev.Name())
		wantNoDisk(ctx, t, c, other.dev.Name())
		awaitLog(ctx, t, d, mark, "a disk of privileged_host_disks is not given to the container")
		if got := readDisk(ctx, t, c, given.dev.Name()); got != "given\n" {
			t.Errorf("the guest reads %q", got)
		}
		writeDisk(ctx, t, c, given.dev.Name(), 8, "written")
		given.wantWritten(t, 8, "written")
		// A container that is not privileged gets none.
		wantBlockDevices(ctx, t, with(ctx, t, pod), 1)
		watcher := idle(ctx, t, pod)
		if err := c.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		wantBlockDevices(ctx, t, watcher, 0)
	})
}

// wantNoDisk fails the test if a container has one of the host's loop devices. The guest's
// own of that name has no file.
func wantNoDisk(ctx context.Context, t *testing.T, c *harness.Container, path string) {
	t.Helper()
	out := execOut(ctx, t, c, harness.ExecConfig{Args: script(fmt.Sprintf("test ! -e %[1]s || { head -n 1 %[1]s && cat /sys/block/%[2]s/size; }", path, filepath.Base(path)))})
	if out != "" && out != "0\n" {
		t.Errorf("the container has the host's %s: %q", path, out)
	}
}

// guestDevices opens devices that programs in privileged containers use, and mounts a
// file as Docker's and disk images' builders do.
const guestDevices = `set -e
exec 3<>/dev/fuse 4<>/dev/net/tun 5</dev/kmsg
cd /run
truncate -s 16M image
/usr/sbin/mkfs.ext4 -q image
mkdir mounted
/usr/bin/mount -o loop image mounted
echo content > mounted/file
/usr/bin/umount mounted
loop=$(/usr/sbin/losetup --find --show image)
/usr/bin/mount $loop mounted
cat mounted/file
/usr/bin/umount mounted
/usr/sbin/losetup --detach $loop
stat -c '%n %a' /dev/loop-control /dev/loop0 /dev/loop7
`

// buildKit is the part about devices of the spec that BuildKit 0.34 makes for a step with
// --security=insecure (its util/entitlements/security), on a host with two loop devices in
// use.
func buildKit(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
	s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Access: "rwm"}, {Allow: true, Type: "b", Access: "rwm"}}
	for name, number := range map[string][2]int64{
		"kmsg": {1, 11}, "cuse": {10, 203}, "fuse": {10, 229}, "kvm": {10, 232}, "net/tun": {10, 200}, "loop-control": {10, 237},
	} {
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{Path: "/dev/" + name, Type: "c", Major: number[0], Minor: number[1]})
	}
	for n := range int64(10) {
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{Path: fmt.Sprintf("/dev/loop%d", n), Type: "b", Major: 7, Minor: n})
	}
	return nil
}

// A privileged container has what the guest has of the devices that a node has, whether
// or not its spec lists the host's.
func TestPrivilegedGuestDevices(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		admin := oci.Compose(oci.WithAddedCapabilities([]string{"CAP_SYS_ADMIN", "CAP_SYSLOG"}), hostTools)
		for name, test := range map[string]struct {
			spec oci.SpecOpts
			mode string
		}{
			"without a list": {oci.WithAllDevicesAllowed, "660"},
			"with a list":    {privileged, "660"},
			"as BuildKit":    {buildKit, "666"},
		} {
			out := execOut(ctx, t, with(ctx, t, pod, test.spec, admin), harness.ExecConfig{Args: script(guestDevices)})
			if want := fmt.Sprintf("\n/dev/loop0 %[1]s\n/dev/loop7 %[1]s\n", test.mode); !strings.HasPrefix(out, "content\n/dev/loop-control ") || !strings.HasSuffix(out, want) {
				t.Errorf("%s: %s", name, out)
			}
		}
		other := with(ctx, t, pod, admin)
		execOut(ctx, t, other, harness.ExecConfig{Args: script("! ls /dev/loop0 && ! ls /dev/fuse")})
	})
}

// hold makes the host use a disk, as a mount does.
func hold(t *testing.T, h *hostDisk) {
	t.Helper()
	fd, err := unix.Open(h.dev.Name(), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
}

// setDisks writes two patterns into the configuration of pods to come.
func setDisks(t *testing.T, d *harness.Daemon, first, second string) {
	t.Helper()
	dropIn(t, d, "60-disks.toml", fmt.Sprintf("[runtime]\nprivileged_host_disks = [%q, %q]\n", first, second))
}

// dropIn adds to the configuration of pods to come.
func dropIn(t *testing.T, d *harness.Daemon, name, text string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(d.KataConfigPath()), "config.d")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
