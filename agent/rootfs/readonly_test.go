package rootfs

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// readonly wants writing to a directory to fail with EROFS, or not to.
func (b *build) readonly(dir string, want bool) {
	b.Helper()
	err := os.WriteFile(dir+"/new", nil, 0o600)
	if (want && !errors.Is(err, unix.EROFS)) || (!want && err != nil) {
		b.Errorf("write in %s: %v, want it read-only: %v", dir, err, want)
	}
}

// TestReadonly proves what is read-only in the end: a tmpfs and /dev that the
// config wants so, in which mountpoints and devices are made nevertheless, and
// the root, but not other mounts.
func TestReadonly(t *testing.T) {
	onThread(t, func(b *build) {
		b.typical()
		b.config.Readonlyfs = true
		b.config.Mounts[1].Flags |= unix.MS_RDONLY
		b.config.Mounts = append(b.config.Mounts,
			tmpfsAt("/ro", unix.MS_RDONLY|unix.MS_NOSUID, "size=1m"),
			tmpfsAt("/ro/below", 0, "size=1m"),
			tmpfsAt("/rw", 0, "size=1m"))
		b.all()
		for dir, want := range map[string]bool{"/": true, "/dev": true, "/ro": true, "/ro/below": false, "/rw": false, "/data": false} {
			b.readonly(dir, want)
		}
		if got, want := b.at("/ro"), "/ /ro ro,nosuid,relatime tmpfs tmpfs rw,size=1024k"; got != want {
			b.Errorf("mount is %q, want %q", got, want)
		}
	})
}

// TestReadonlyRootKeepsFlags proves that a root that becomes read-only keeps what it is
// mounted with.
func TestReadonlyRootKeepsFlags(t *testing.T) {
	onThread(t, func(b *build) {
		const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOSYMFOLLOW | unix.MS_NOATIME
		b.must(unix.Mount(b.config.Rootfs, b.config.Rootfs, "", unix.MS_BIND, ""))
		b.must(unix.Mount("", b.config.Rootfs, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""))
		b.config.Readonlyfs = true
		b.all()
		if got, want := strings.Fields(b.at("/"))[2], "ro,nosuid,nodev,noexec,noatime,nosymfollow"; got != want {
			b.Errorf("options %q, want %q", got, want)
		}
	})
}

// TestReadonlyWaits proves that a file that is open for a moment longer does not
// prevent a tmpfs from becoming read-only.
func TestReadonlyWaits(t *testing.T) {
	onThread(t, func(b *build) {
		b.config.Mounts = append(b.config.Mounts, tmpfsAt("/ro", unix.MS_RDONLY, ""))
		b.must(b.mounts())
		b.must(b.root.Enter(""))
		f, err := os.Create("/ro/file")
		b.must(err)
		if err := setReadonly(b.root.writable[0].fd); !errors.Is(err, unix.EBUSY) {
			b.Errorf("error %v, want EBUSY", err)
		}
		time.AfterFunc(150*time.Millisecond, func() { f.Close() })
		b.must(b.root.Finish())
		b.readonly("/ro", true)
	})
}

// TestReadonlyPaths proves that such a path is read-only without the mounts below
// it, and that a missing one is skipped.
func TestReadonlyPaths(t *testing.T) {
	onThread(t, func(b *build) {
		b.dir("rootfs/etc/deep")
		b.link("etc", "alias")
		b.config.Mounts = append(b.config.Mounts, tmpfsAt("/etc/mount", 0, ""))
		b.config.ReadonlyPaths = []string{"/alias", "/missing/path"}
		b.all()
		for dir, want := range map[string]bool{"/": false, "/etc": true, "/etc/deep": true, "/etc/mount": false} {
			b.readonly(dir, want)
		}
	})
}

// TestMaskPaths proves that masked files are empty and masked directories too,
// also those that a link leads to, and that they take no new file.
func TestMaskPaths(t *testing.T) {
	onThread(t, func(b *build) {
		b.typical()
		b.file("rootfs/secret/key", "secret")
		b.file("rootfs/other/key", "secret")
		b.file("rootfs/file", "secret")
		b.link("file", "alias")
		b.config.MaskPaths = []string{"/secret", "/alias", "/missing", "other"}
		b.all()
		for _, dir := range []string{"/secret", "/other"} {
			if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
				b.Errorf("%s has %v (%v), want nothing", dir, list, err)
			}
			b.readonly(dir, true)
		}
		if content, err := os.ReadFile("/file"); err != nil || len(content) != 0 {
			b.Errorf("file has %q (%v), want nothing", content, err)
		}
	})
}

// TestPathsOfTheProcess proves that a path that leads to the process's own files is not
// taken for a missing one because the thread has none in the container's /proc.
func TestPathsOfTheProcess(t *testing.T) {
	for name, list := range map[string]func(c *configs.Config) *[]string{
		"can't mask path":             func(c *configs.Config) *[]string { return &c.MaskPaths },
		`can't make "/etc/mtab" read`: func(c *configs.Config) *[]string { return &c.ReadonlyPaths },
	} {
		onThread(t, func(b *build) {
			b.dir("rootfs/proc")
			b.link("../proc/mounts", "etc/mtab")
			b.link("self/mounts", "proc/mounts")
			b.link("missing", "etc/dangling")
			b.config.Devices = []*devices.Device{device("/dev/null", 1, 3, 0o666)}
			*list(b.config) = []string{"/etc/dangling", "/etc/mtab"}
			b.must(b.mounts())
			b.must(b.root.Enter(""))
			err := b.root.Finish()
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "it leads to /proc/self/mounts") {
				b.Errorf("error %v, want one that says where it leads", err)
			}
		})
	}
}

// TestMaskNeedsNull proves that a container's /dev/null that is something else
// masks nothing.
func TestMaskNeedsNull(t *testing.T) {
	onThread(t, func(b *build) {
		b.file("rootfs/dev/null", "not empty")
		b.file("rootfs/file", "secret")
		b.config.MaskPaths = []string{"/file"}
		b.must(b.mounts())
		b.must(b.root.Enter(""))
		err := b.root.Finish()
		if err == nil || !strings.Contains(err.Error(), "can't mask paths: container's /dev/null is invalid") {
			b.Errorf("error %v", err)
		}
	})
}

// TestSysctl proves that a sysctl is that of the thread's IPC namespace, and that
// a container without /proc gets it.
func TestSysctl(t *testing.T) {
	const file, value = "/proc/sys/kernel/msgmax", "9123"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Skip(err)
	}
	onThread(t, func(b *build) {
		b.config.Sysctl = map[string]string{"kernel.msgmax": value}
		b.all()
		fd, err := unix.Openat(b.root.proc, "sys/kernel/msgmax", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		b.must(err)
		defer unix.Close(fd)
		var buffer [32]byte
		n, err := unix.Read(fd, buffer[:])
		if got := strings.TrimSpace(string(buffer[:max(n, 0)])); got != value {
			b.Errorf("sysctl is %q (%v), want %q", got, err, value)
		}
	})
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the host's sysctl is %q (%v), was %q", after, err, before)
	}
}

func TestSysctlErrors(t *testing.T) {
	for key, words := range map[string]string{
		"kernel.msgmax":          `failed to write sysctl kernel.msgmax = "bad"`,
		"kernel.no_such_sysctl":  "open sysctl kernel.no_such_sysctl file",
		"../../../../etc/passwd": "open sysctl ",
	} {
		onThread(t, func(b *build) {
			b.config.Sysctl = map[string]string{key: "bad"}
			b.must(b.mounts())
			b.must(b.root.Enter(""))
			if err := b.root.Finish(); err == nil || !strings.Contains(err.Error(), words) {
				b.Errorf("error %v, want %q", err, words)
			}
		})
	}
}
