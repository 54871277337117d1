package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	devices "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"
)

// TestTypical proves the mounts of a typical container of containerd: which there
// are, their order, options, propagation and types.
func TestTypical(t *testing.T) {
	onThread(t, func(b *build) {
		b.typical()
		b.config.MaskPaths = []string{"/proc/acpi", "/proc/keys", "/proc/missing", "/proc/keys/", "/sys/firmware"}
		b.config.ReadonlyPaths = []string{"/proc/bus", "/proc/missing", "/proc/sys"}
		b.all()
		want := []string{
			"OUTER/rootfs / rw,relatime HOST",
			"/ /proc rw,nosuid,nodev,noexec,relatime proc proc rw",
			"/ /dev rw,nosuid tmpfs tmpfs rw,size=65536k,mode=755",
			"/ /dev/pts rw,nosuid,noexec,relatime devpts devpts rw,gid=5,mode=620,ptmxmode=666",
			"/ /dev/mqueue rw,nosuid,nodev,noexec,relatime mqueue mqueue rw",
			"/ /sys ro,nosuid,nodev,noexec,relatime sysfs sysfs SUPER",
			"/ /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime cgroup2 cgroup SUPER",
			"OUTER/hosts /etc/hosts ro,relatime HOST",
			"/ /dev/shm rw,nosuid,nodev,noexec,relatime tmpfs tmpfs rw,size=65536k",
			"OUTER/volume /data rw,relatime HOST",
			"OUTER/volume /data/again rw,nodev,relatime HOST",
			"/bus /proc/bus ro,nosuid,nodev,noexec,relatime proc proc rw",
			"/sys /proc/sys ro,nosuid,nodev,noexec,relatime proc proc rw",
			"/ /proc/acpi ro,relatime tmpfs tmpfs ro,size=4k,nr_inodes=1",
			"/null /proc/keys rw,nosuid tmpfs tmpfs rw,size=65536k,mode=755",
			"/ /sys/firmware ro,relatime tmpfs tmpfs ro,size=4k,nr_inodes=1",
		}
		if diff := cmp.Diff(want, b.sameEverywhere(b.mountinfo())); diff != "" {
			b.Errorf("mounts differ (-want +got):\n%s", diff)
		}
	})
}

// sameEverywhere replaces in lines of mountinfo what differs between hosts: where
// the test's files are, on what, and the options that the host chose for the file
// systems that it shares with the container.
func (b *build) sameEverywhere(lines []string) []string {
	b.Helper()
	var list []string
	dir := filepath.Join(filepath.Base(filepath.Dir(b.outer)), filepath.Base(b.outer))
	for _, line := range lines {
		w := strings.Fields(line)
		if _, rest, ok := strings.Cut(w[0], dir); ok {
			w[0] = "OUTER" + rest
			w = append(w[:len(w)-3], "HOST")
		} else if k := w[len(w)-3]; k == "sysfs" || k == "cgroup2" {
			w[len(w)-1] = "SUPER"
		}
		list = append(list, strings.Join(w, " "))
	}
	return list
}

// TestDevices proves types, numbers, modes and owners of device nodes, the links
// of /dev, and that an existing node keeps its mode.
func TestDevices(t *testing.T) {
	onThread(t, func(b *build) {
		b.typical()
		b.dir("rootfs/elsewhere")
		b.must(unix.Mknod(filepath.Join(b.config.Rootfs, "elsewhere/old"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		owned := device("/dev/dir/owned", 1, 5, 0o640)
		owned.Uid, owned.Gid = 7, 8
		fifo := device("/dev/fifo", 0, 0, 0o777)
		fifo.Type = 'p'
		b.config.Devices = append(b.config.Devices, owned, fifo,
			device("/elsewhere/old", 1, 3, 0o666), device("/dev/ptmx", 1, 3, 0o666), device("", 1, 3, 0o666))
		b.all()
		for path, want := range map[string]unix.Stat_t{
			"/dev/null":      {Mode: unix.S_IFCHR | 0o666, Rdev: unix.Mkdev(1, 3)},
			"/dev/dir/owned": {Mode: unix.S_IFCHR | 0o640, Rdev: unix.Mkdev(1, 5), Uid: 7, Gid: 8},
			"/dev/fifo":      {Mode: unix.S_IFIFO | 0o777},
			"/elsewhere/old": {Mode: unix.S_IFCHR | 0o600, Rdev: unix.Mkdev(1, 3)},
		} {
			var st unix.Stat_t
			b.must(unix.Lstat(path, &st))
			got := unix.Stat_t{Mode: st.Mode, Rdev: st.Rdev, Uid: st.Uid, Gid: st.Gid}
			if got != want {
				b.Errorf("%s is %#o %#x %d:%d, want %#o %#x %d:%d", path,
					got.Mode, got.Rdev, got.Uid, got.Gid, want.Mode, want.Rdev, want.Uid, want.Gid)
			}
		}
		for name, want := range map[string]string{
			"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		} {
			if got, err := os.Readlink("/dev/" + name); got != want {
				b.Errorf("/dev/%s leads to %q (%v), want %q", name, got, err, want)
			}
		}
	})
}

// TestOldDeviceNodes proves that a node of another number is replaced in the root
// file system, where an earlier start may have left it, and neither in a volume nor
// where another type of file is.
func TestOldDeviceNodes(t *testing.T) {
	onThread(t, func(b *build) {
		b.typical()
		volume := b.dir("volume")
		b.config.Mounts = append(b.config.Mounts, bindOf(volume, "/volume", 0))
		b.dir("rootfs/elsewhere")
		b.link("elsewhere/old", "/link")
		b.must(os.WriteFile(filepath.Join(b.config.Rootfs, "elsewhere/file"), nil, 0o644))
		for _, at := range []string{filepath.Join(b.config.Rootfs, "elsewhere/old"), filepath.Join(volume, "old")} {
			b.must(unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(254, 16))))
		}
		for _, path := range []string{"/link", "/elsewhere/file", "/volume/old"} {
			disk := device(path, 254, 32, 0o660)
			disk.Type = devices.BlockDevice
			b.config.Devices = append(b.config.Devices, disk)
		}
		b.all()
		for path, want := range map[string]unix.Stat_t{
			"/elsewhere/old":  {Mode: unix.S_IFBLK | 0o660, Rdev: unix.Mkdev(254, 32)},
			"/elsewhere/file": {Mode: unix.S_IFREG | 0o644},
			"/volume/old":     {Mode: unix.S_IFBLK | 0o600, Rdev: unix.Mkdev(254, 16)},
		} {
			var st unix.Stat_t
			b.must(unix.Lstat(path, &st))
			if st.Mode != want.Mode || st.Rdev != want.Rdev {
				b.Errorf("%s is %#o %#x, want %#o %#x", path, st.Mode, st.Rdev, want.Mode, want.Rdev)
			}
		}
	})
}

// TestDevicesWithoutMknod proves that a thread that may make no device mounts the
// guest's own.
func TestDevicesWithoutMknod(t *testing.T) {
	onThread(t, func(b *build) {
		b.config.Devices = []*devices.Device{device("/dev/zero", 1, 5, 0o666)}
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		b.must(unix.Capget(&header, &data[0]))
		data[0].Effective &^= 1 << unix.CAP_MKNOD
		b.must(unix.Capset(&header, &data[0]))
		b.all()
		b.at("/dev/zero")
		var st unix.Stat_t
		b.must(unix.Stat("/dev/zero", &st))
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 5) {
			b.Errorf("device is %#o %#x", st.Mode, st.Rdev)
		}
	})
}

// TestBindNodeOpensNothing proves that what took the node's place meanwhile is not
// opened and not covered.
func TestBindNodeOpensNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "zero"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	onThread(t, func(b *build) {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		b.must(err)
		defer unix.Close(fd)
		if err := bindNode(fd, "zero", device("/dev/zero", 1, 5, 0o666)); !errors.Is(err, unix.EEXIST) {
			b.Errorf("bound: %v, want %v", err, unix.EEXIST)
		}
	})
}

// TestDeviceType proves that a device of an unknown type is refused.
func TestDeviceType(t *testing.T) {
	onThread(t, func(b *build) {
		odd := device("/dev/odd", 1, 5, 0o666)
		odd.Type = 'u'
		b.config.Devices = []*devices.Device{odd}
		b.refused("configuring container /dev: error creating device nodes: u is not a valid device type for device /dev/odd")
	})
}

// TestDevOfVolume proves that nothing is made in a /dev that is a bind mount.
func TestDevOfVolume(t *testing.T) {
	onThread(t, func(b *build) {
		dev := b.dir("dev")
		b.typical()
		b.config.Mounts = append(b.config.Mounts[:0:0], bindOf(dev, "/dev", 0))
		b.must(b.mounts())
		if list, err := os.ReadDir(dev); err != nil || len(list) != 0 {
			b.Errorf("there is %v (%v)", list, err)
		}
	})
}

// TestEnter proves that the old root is unreachable, and that the working
// directory is made.
func TestEnter(t *testing.T) {
	onThread(t, func(b *build) {
		b.file("rootfs/marker", "")
		b.must(b.mounts())
		b.must(b.root.Enter("/work/dir"))
		if _, err := os.Stat("/marker"); err != nil {
			b.Error(err)
		}
		if _, err := os.Stat(b.outer); !errors.Is(err, fs.ErrNotExist) {
			b.Errorf("the host's directory: %v, want none", err)
		}
		if list := b.mountinfo(); len(list) != 1 {
			b.Errorf("mounts: %q, want the root alone", list)
		}
		info, err := os.Stat("/work/dir")
		b.must(err)
		if info.Mode() != fs.ModeDir|0o755 {
			b.Errorf("working directory has mode %v", info.Mode())
		}
	})
}

func TestWorkingDirectoryIsAFile(t *testing.T) {
	onThread(t, func(b *build) {
		b.file("rootfs/file", "")
		b.must(b.mounts())
		if err := b.root.Enter("/file"); !errors.Is(err, unix.ENOTDIR) {
			b.Errorf("error %v, want ENOTDIR", err)
		}
	})
}

// TestWorkingDirectoryOfTheProcess proves that a link to the process's own files is left
// to the process, and another one that leads nowhere is not.
func TestWorkingDirectoryOfTheProcess(t *testing.T) {
	for name, works := range map[string]bool{"/dev/fd": true, "/link/3": true, "/dangling": false, "/dangling/dir": false} {
		onThread(t, func(b *build) {
			b.dir("rootfs/proc")
			b.link("dev/fd", "link")
			b.link("/proc/selfish", "dangling")
			b.must(b.mounts())
			if err := b.root.Enter(name); (err == nil) != works || !works && !errors.Is(err, fs.ErrExist) {
				b.Errorf("%s: error %v, want none: %t", name, err, works)
			}
		})
	}
}

// TestClose proves that Close may be called again, and leaves no descriptor.
func TestClose(t *testing.T) {
	onThread(t, func(b *build) {
		before := descriptors(b)
		b.typical()
		b.config.Mounts = append(b.config.Mounts, tmpfsAt("/ro", unix.MS_RDONLY, ""))
		b.must(b.mounts())
		b.must(b.root.Close())
		b.must(b.root.Close())
		if after := descriptors(b); after != before {
			b.Errorf("%d descriptors are open, %d before", after, before)
		}
	})
}

func descriptors(b *build) int {
	b.Helper()
	list, err := os.ReadDir("/proc/thread-self/fd")
	b.must(err)
	return len(list)
}
