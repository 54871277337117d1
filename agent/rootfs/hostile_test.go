package rootfs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// untouched wants the host's directory to be empty.
func (b *build) untouched(dir string) {
	b.Helper()
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		b.Errorf("the host's directory has %v (%v), want nothing", list, err)
	}
}

// TestLinksStayInside proves that links in the root, absolute or with "..", lead
// to places in the root and never to the host's, for mounts, files that are made
// for them, and devices.
func TestLinksStayInside(t *testing.T) {
	for _, up := range []string{"", "../../../../../../../.."} {
		onThread(t, func(b *build) {
			out := b.dir("out")
			target := up + out
			b.link(target, "etc/x")
			b.link(target+"/file", "etc/file")
			b.link(target, "dev")
			file, volume := b.file("file", "content"), b.dir("volume")
			b.config.Mounts = []*configs.Mount{
				bindOf(file, "/etc/x/made", 0), bindOf(volume, "/etc/x/dir/made", 0), bindOf(file, "/etc/file", 0),
			}
			b.config.Devices = []*devices.Device{device("/etc/x/null", 1, 3, 0o666), device("/dev/null", 1, 3, 0o666)}
			b.must(b.mounts())
			b.untouched(out)
			inside := filepath.Join(b.config.Rootfs, out)
			for _, name := range []string{"made", "dir/made", "file", "null", "ptmx", "fd"} {
				if _, err := os.Lstat(filepath.Join(inside, name)); err != nil {
					b.Error(err)
				}
			}
		})
	}
}

// TestRootChanges proves that nothing is made outside while another process keeps
// replacing a directory in the root by a link that leads out, and back.
func TestRootChanges(t *testing.T) {
	onThread(t, func(b *build) {
		out := b.dir("out")
		b.dir("out/d")
		b.dir("rootfs/a")
		b.link(out, "link")
		b.must(b.mounts())
		file, err := os.Open(b.file("file", ""))
		b.must(err)
		defer file.Close()
		stop := b.exchange("a", "link")
		made := 0
		for i := range 500 {
			// Errors are expected: the path is another one at each step.
			name := fmt.Sprintf("/a/d%d/f", i)
			if at, err := b.root.mountpoint(bindOf("", name, 0), int(file.Fd())); err == nil {
				unix.Close(at.fd)
				made++
			}
		}
		if swaps := stop(); swaps == 0 || made == 0 {
			b.Errorf("%d mountpoints were made during %d changes", made, swaps)
		}
		b.must(os.Remove(out + "/d"))
		b.untouched(out)
	})
}

// exchange exchanges two names in the root until the returned function is called,
// which returns how often.
func (b *build) exchange(one, other string) (stop func() int) {
	end, done := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-end:
				done <- n
				return
			default:
			}
			err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(b.config.Rootfs, one), unix.AT_FDCWD, filepath.Join(b.config.Rootfs, other), unix.RENAME_EXCHANGE)
			if err != nil {
				b.Error(err)
			}
		}
	}()
	return func() int { close(end); return <-done }
}

// TestProcAndSysfsWantDirectories proves that the root does not choose where proc
// and sysfs are.
func TestProcAndSysfsWantDirectories(t *testing.T) {
	for _, fstype := range []string{"proc", "sysfs"} {
		for _, kind := range []string{"link out", "link inside", "file"} {
			onThread(t, func(b *build) {
				out := b.dir("out")
				switch kind {
				case "link out":
					b.link(out, "place")
				case "link inside":
					b.dir("rootfs/other")
					b.link("other", "place")
				default:
					b.file("rootfs/place", "")
				}
				b.config.Mounts = []*configs.Mount{{Source: fstype, Destination: "/place", Device: fstype}}
				b.refused(`filesystem "` + fstype + `" must be mounted on ordinary directory`)
				b.untouched(out)
			})
		}
	}
}

// TestRefusedPlaces proves what cannot be mounted where, with libcontainer's words.
func TestRefusedPlaces(t *testing.T) {
	for name, test := range map[string]struct {
		mount func(b *build) *configs.Mount
		words string
	}{
		"root":         {func(b *build) *configs.Mount { return tmpfsAt("/", 0, "") }, `is on the top of rootfs "`},
		"root by link": {func(b *build) *configs.Mount { b.link("..", "up"); return tmpfsAt("/up", 0, "") }, `is on the top of rootfs "`},
		"in proc":      {func(b *build) *configs.Mount { return tmpfsAt("/proc/sys", 0, "") }, `cannot be mounted because it is inside /proc`},
		"in proc by link": {
			func(b *build) *configs.Mount { b.link("/proc/sys", "sys"); return tmpfsAt("/sys", 0, "") },
			`/proc/sys" cannot be mounted because it is inside /proc`,
		},
		"tmpfs on proc": {func(b *build) *configs.Mount { return tmpfsAt("/proc", 0, "") }, `cannot be mounted because it is not of type proc`},
		"volume on proc": {
			func(b *build) *configs.Mount { return bindOf(b.dir("volume"), "/proc", 0) },
			`cannot be mounted because it is not of type proc`,
		},
		"loop of links": {
			func(b *build) *configs.Mount {
				b.link("b", "a")
				b.link("a", "b")
				return tmpfsAt("/a/x", 0, "")
			},
			"lookup mountpoint target: open /a/x: too many levels of symbolic links",
		},
		"below a file": {
			func(b *build) *configs.Mount { b.file("rootfs/file", ""); return tmpfsAt("/file/x", 0, "") },
			"not a directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			onThread(t, func(b *build) {
				b.config.Mounts = []*configs.Mount{procAt("/proc"), test.mount(b)}
				b.refused("error mounting ", test.words)
			})
		})
	}
}

// TestAllowedInProc proves that the files of lxcfs and another proc may be mounted
// there.
func TestAllowedInProc(t *testing.T) {
	onThread(t, func(b *build) {
		b.config.Mounts = []*configs.Mount{procAt("/proc"), bindOf(b.file("meminfo", "MemTotal: 1\n"), "/proc/meminfo", 0)}
		b.all()
		if content, err := os.ReadFile("/proc/meminfo"); string(content) != "MemTotal: 1\n" {
			b.Errorf("file has %q (%v)", content, err)
		}
	})
	onThread(t, func(b *build) {
		b.config.Mounts = []*configs.Mount{bindOf("/proc", "/proc", 0)}
		b.all()
	})
}
