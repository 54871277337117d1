package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// hostDisk is a loop device on the host, over a file in the daemon's directory.
// It exists while the test or a machine has it open.
type hostDisk struct {
	// file holds its content; it begins with its name.
	file         string
	dev          *os.File
	major, minor int64
}

func newHostDisk(t *testing.T, d *harness.Daemon, name string) *hostDisk {
	t.Helper()
	h := &hostDisk{file: filepath.Join(d.Dir, name+".disk")}
	err := os.WriteFile(h.file, []byte(name+"\n"), 0o600)
	if err == nil {
		err = os.Truncate(h.file, 4*mib)
	}
	if err != nil {
		t.Fatal(err)
	}
	if h.dev, err = mount.SetupLoop(h.file, mount.LoopParams{Autoclear: true}); err != nil {
		t.Skipf("needs loop devices: %v", err)
	}
	t.Cleanup(func() { _ = h.dev.Close() })
	var st unix.Stat_t
	if err := unix.Stat(h.dev.Name(), &st); err != nil {
		t.Fatal(err)
	}
	h.major, h.minor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	return h
}

// as gives a container the disk at that path.
func (h *hostDisk) as(path, access string) oci.SpecOpts {
	return withDevice(specs.LinuxDevice{Path: path, Type: "b", Major: h.major, Minor: h.minor}, access)
}

// withDevice is what an engine's --device does, with any path.
func withDevice(device specs.LinuxDevice, access string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		s.Linux.Devices = append(s.Linux.Devices, device)
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: true, Type: device.Type, Major: &device.Major, Minor: &device.Minor, Access: access,
		})
		return nil
	}
}

// wantWritten fails the test unless the disk holds text at that block of 512
// bytes.
func (h *hostDisk) wantWritten(t *testing.T, block int64, text string) {
	t.Helper()
	f, err := os.Open(h.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 512)
	if _, err := f.ReadAt(got, block*512); err != nil {
		t.Fatal(err)
	}
	if got := string(bytes.TrimRight(got, "\x00")); got != text {
		t.Errorf("%s has %q at block %d, want %q", filepath.Base(h.file), got, block, text)
	}
}

// with starts an idle container with such a spec.
func with(ctx context.Context, t *testing.T, pod *harness.Pod, spec ...oci.SpecOpts) *harness.Container {
	t.Helper()
	return add(ctx, t, pod, harness.ContainerConfig{Name: "disks", Args: []string{"sleep", "100000"}, Spec: spec})
}

// readDisk reads the first line of a disk, and writeDisk writes one to a block
// of it, until it is the host's.
func readDisk(ctx context.Context, t *testing.T, c *harness.Container, path string) string {
	t.Helper()
	return execOut(ctx, t, c, harness.ExecConfig{Args: script("head -n 1 " + path)})
}

func writeDisk(ctx context.Context, t *testing.T, c *harness.Container, path string, block int, text string) {
	t.Helper()
	execOut(ctx, t, c, harness.ExecConfig{Args: script(fmt.Sprintf("printf %s | dd of=%s bs=512 seek=%d conv=fsync,notrunc", text, path, block))})
}

// A disk of the host becomes a disk of the guest, with a node in the container,
// and is detached with the last container that has it.
func TestBlockDevice(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		host := newHostDisk(t, d, "shared")
		mode, uid, gid := os.FileMode(0o640), uint32(7), uint32(8)
		node := specs.LinuxDevice{Path: "/dev/disk/data", Type: "b", Major: host.major, Minor: host.minor, FileMode: &mode, UID: &uid, GID: &gid}
		watcher := idle(ctx, t, pod)
		first, second := with(ctx, t, pod, withDevice(node, "rwm")), with(ctx, t, pod, host.as("dev//other/", "rw")) // Kubernetes allows such a devicePath
		if err := host.dev.Close(); err != nil {                                                                     // the machine has it
			t.Fatal(err)
		}
		wantBlockDevices(ctx, t, watcher, 1)
		wantNode(ctx, t, first, node.Path, "640 7 8")
		wantNode(ctx, t, second, "/dev/other", "666 0 0")
		if got := readDisk(ctx, t, first, node.Path); got != "shared\n" {
			t.Errorf("the guest reads %q", got)
		}
		writeDisk(ctx, t, first, node.Path, 8, "first")
		host.wantWritten(t, 8, "first")
		if err := first.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		writeDisk(ctx, t, second, "/dev/other", 9, "second")
		host.wantWritten(t, 9, "second")
		wantBlockDevices(ctx, t, watcher, 1)
		if err := second.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		wantBlockDevices(ctx, t, watcher, 0)
		wantNoLoop(t, host)
	})
}

// wantNode fails the test unless the container has a node with that mode and
// owner, and the number of the guest's disk.
func wantNode(ctx context.Context, t *testing.T, c *harness.Container, path, want string) {
	t.Helper()
	text := fmt.Sprintf(`set -e; stat -c "%%a %%u %%g" %[1]s; cat /sys/dev/block/$((0x$(stat -c %%t %[1]s))):$((0x$(stat -c %%T %[1]s)))/size`, path)
	out := execOut(ctx, t, c, harness.ExecConfig{Args: script(text)})
	if want = fmt.Sprintf("%s\n%d\n", want, 4*mib/512); out != want {
		t.Errorf("%s: %q, want %q", path, out, want)
	}
}

// wantNoLoop fails the test if the loop device still exists.
func wantNoLoop(t *testing.T, host *hostDisk) {
	t.Helper()
	backing := filepath.Join("/sys/block", filepath.Base(host.dev.Name()), "loop/backing_file")
	if file, err := os.ReadFile(backing); err == nil && strings.TrimSpace(string(file)) == host.file {
		t.Errorf("%s is still over %s", host.dev.Name(), host.file)
	}
}

// The access rules for a container's disk are enforced.
func TestBlockDeviceAccess(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		host, privileged := newHostDisk(t, d, "read"), newHostDisk(t, d, "privileged")
		c := with(ctx, t, pod, host.as("/dev/data", "r"), privileged.as("/dev/all", "rwm"), withDevice(
			specs.LinuxDevice{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}, "rwm"))
		if got := readDisk(ctx, t, c, "/dev/data"); got != "read\n" {
			t.Errorf("the guest reads %q", got)
		}
		p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script("echo x > /dev/data")})
		if err != nil || code == 0 || !strings.Contains(p.Err.String(), "Operation not permitted") {
			t.Errorf("write: %v, %d, %s", err, code, p.Err)
		}
		host.wantWritten(t, 0, "read\n")
		// A container may make another node of its disk, but not of another
		// container's disk.
		text := `set -- $(stat -c "%t %T" /dev/all); mknod /tmp/all b $((0x$1)) $((0x$2)) && head -c 1 /tmp/all`
		execOut(ctx, t, c, harness.ExecConfig{Args: script(text)})
		other := with(ctx, t, pod)
		number := execOut(ctx, t, c, harness.ExecConfig{Args: script(`echo $((0x$(stat -c %t /dev/all))) $((0x$(stat -c %T /dev/all)))`)})
		p, code, err = other.ExecRun(ctx, harness.ExecConfig{Args: script("mknod /tmp/all b " + strings.TrimSpace(number) + " && head -c 1 /tmp/all")})
		if err != nil || code == 0 || !strings.Contains(p.Err.String(), "Operation not permitted") {
			t.Errorf("another container's disk: %v, %d, %s", err, code, p.Err)
		}
	})
}

func ptr[T any](v T) *T { return &v }

// chars are devices that the guest's kernel has, at paths that the test chooses.
var chars = []oci.SpecOpts{
	withDevice(specs.LinuxDevice{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}, "rwm"),
	withDevice(specs.LinuxDevice{Path: "/dev/net/tun", Type: "c", Major: 10, Minor: 200}, "rw"),
	withDevice(specs.LinuxDevice{Path: "/run/blank", Type: "c", Major: 1, Minor: 5, FileMode: ptr(os.FileMode(0o640)), UID: ptr(uint32(7)), GID: ptr(uint32(8))}, "rw"),
	withDevice(specs.LinuxDevice{Path: "/dev/loop-control", Type: "c", Major: 10, Minor: 237}, "rw"),
	withDevice(specs.LinuxDevice{Path: "/dev/uhid", Type: "c", Major: 10, Minor: 239}, "r"),
}

// Character devices of the guest's kernel are made available, whether or not
// their drivers were loaded, with the spec's mode, owner and access.
func TestCharacterDevices(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := with(ctx, t, newPod(ctx, t, d), chars...)
		out := execOut(ctx, t, c, harness.ExecConfig{Args: script(`set -e
			for f in /dev/fuse /dev/net/tun /run/blank /dev/loop-control /dev/uhid; do stat -c "%n %a %u %g" $f; done
			exec 3<>/dev/fuse 4<>/dev/net/tun 5<>/dev/loop-control 6</dev/uhid
			head -c 3 /run/blank | od -An -tx1
			(exec 7>/dev/uhid) 2>&1 || true`)})
		want := []string{"/dev/fuse 666 0 0", "/dev/net/tun 666 0 0", "/run/blank 640 7 8", "/dev/loop-control 666 0 0", "/dev/uhid 666 0 0",
			" 00 00 00", "not permitted"}
		lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
		for i, line := range want {
			if i >= len(lines) || !strings.Contains(lines[i], line) {
				t.Fatalf("line %d is not %q:\n%s", i+1, line, out)
			}
		}
	})
}

// A requested character device that no guest, or not this one, has is an error
// with its name. Those that a privileged container's spec lists do not count as
// requested.
func TestCharacterDevicesThatAreNotThere(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		serial := withDevice(specs.LinuxDevice{Path: "/dev/serial", Type: "c", Major: 188, Minor: 7}, "rwm")
		vhost := withDevice(specs.LinuxDevice{Path: "/dev/vhost", Type: "c", Major: 10, Minor: 238}, "rwm")
		for want, spec := range map[string]oci.SpecOpts{
			"device /dev/serial, character device 188:7":                     serial,
			"device /dev/vhost: the guest has no character device vhost-net": vhost,
		} {
			c, err := pod.Add(ctx, harness.ContainerConfig{Name: "wrong", Args: []string{"true"}, Spec: []oci.SpecOpts{spec}})
			if err == nil {
				t.Errorf("%s: it was made", want)
				removed(t, "container", c.Remove)
			} else if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		c := with(ctx, t, pod, append(chars, serial, vhost, oci.WithHostDevices, oci.WithAllDevicesAllowed)...)
		execOut(ctx, t, c, harness.ExecConfig{Args: script("set -e; exec 3<>/dev/fuse 4<>/dev/net/tun; ! ls /dev/serial; ! ls /dev/vhost; ! ls /dev/mem")})
		wantBlockDevices(ctx, t, c, 0)
	})
}

// manyDisks is more than the machine's bridge has slots for.
const manyDisks = 30

func TestManyBlockDevices(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		watcher := idle(ctx, t, pod)
		var spec []oci.SpecOpts
		var hosts []*hostDisk
		for i := range manyDisks {
			host := newHostDisk(t, d, fmt.Sprintf("many-%d", i))
			hosts = append(hosts, host)
			spec = append(spec, host.as(fmt.Sprintf("/dev/d%d", i), "rw"))
		}
		c := with(ctx, t, pod, spec...)
		wantBlockDevices(ctx, t, watcher, manyDisks)
		text := fmt.Sprintf(`set -e; for i in $(seq 0 %d); do head -n 1 /dev/d$i; echo wrote $i | dd of=/dev/d$i bs=512 seek=1 conv=fsync,notrunc 2>/dev/null; done`, manyDisks-1)
		out, want := execOut(ctx, t, c, harness.ExecConfig{Args: script(text)}), ""
		for i, host := range hosts {
			want += fmt.Sprintf("many-%d\n", i)
			host.wantWritten(t, 1, fmt.Sprintf("wrote %d\n", i))
		}
		if out != want {
			t.Errorf("the disks have %q, want %q", out, want)
		}
		if err := c.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		wantBlockDevices(ctx, t, watcher, 0)
	})
}

// A container whose disk is unavailable is not made, and nothing of it is left.
func TestWrongBlockDevice(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		watcher := idle(ctx, t, pod)
		good, used := newHostDisk(t, d, "good"), newHostDisk(t, d, "used")
		alone, err := os.OpenFile(used.dev.Name(), os.O_RDONLY|unix.O_EXCL, 0) // as a mount holds it
		if err != nil {
			t.Fatal(err)
		}
		defer alone.Close()
		reader := with(ctx, t, pod, newHostDisk(t, d, "reader").as("/dev/data", "r"))
		for want, spec := range map[string][]oci.SpecOpts{
			"device /dev/none, block device 254:9999: the host has no such device":                                                  {withDevice(specs.LinuxDevice{Path: "/dev/none", Type: "b", Major: 254, Minor: 9999}, "rwm")},
			fmt.Sprintf("device /dev/used: attach disk %s: block device %d:%d is mounted", used.dev.Name(), used.major, used.minor): {used.as("/dev/used", "rwm")},
		} {
			c, err := pod.Add(ctx, harness.ContainerConfig{Name: "wrong", Args: []string{"true"}, Spec: append([]oci.SpecOpts{good.as("/dev/good", "rwm")}, spec...)})
			if err == nil {
				t.Errorf("%s: it was made", want)
				removed(t, "container", c.Remove)
			} else if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			wantBlockDevices(ctx, t, watcher, 1)
		}
		if got := readDisk(ctx, t, reader, "/dev/data"); got != "reader\n" {
			t.Errorf("the other container's disk: %q", got)
		}
	})
}

// Whichever process dies, the host gets its disk back: otherwise the leak check
// finds the loop device.
func TestBlockDeviceDeaths(t *testing.T) {
	needVM(t)
	for _, kind := range []string{harness.KindVMM, harness.KindShim} {
		t.Run(kind, func(t *testing.T) {
			newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				recorder := d.Record(ctx)
				defer recorder.Close()
				pod := newPod(ctx, t, d)
				host := newHostDisk(t, d, "lost")
				c := with(ctx, t, pod, host.as("/dev/data", "rwm"))
				if err := host.dev.Close(); err != nil {
					t.Fatal(err)
				}
				writeDisk(ctx, t, c, "/dev/data", 1, "synced")
				killOne(t, d, kind)
				awaitLoss(ctx, t, recorder, kind, pod)
				host.wantWritten(t, 1, "synced")
			})
		})
	}
}
