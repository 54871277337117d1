package rootfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// options returns the options of the last mount at a place, with its propagation.
func (b *build) options(place string) string {
	b.Helper()
	words := strings.Fields(b.at(place))
	return strings.Join(words[2:len(words)-3], " ")
}

// TestBindOptions proves the options of bind mounts: the source's if the config
// says nothing, else the config's alone, and the access time's kept.
func TestBindOptions(t *testing.T) {
	for name, test := range map[string]struct {
		flags, cleared int
		want           string
	}{
		"nothing said":  {0, 0, "rw,nosuid,nodev,noatime"},
		"recursive":     {unix.MS_REC, 0, "rw,nosuid,nodev,noatime"},
		"read-only":     {unix.MS_RDONLY, 0, "ro,noatime"},
		"flags cleared": {0, unix.MS_NOSUID, "rw,noatime"},
		"access time":   {unix.MS_NOEXEC | unix.MS_RELATIME, 0, "rw,noexec,relatime"},
	} {
		t.Run(name, func(t *testing.T) {
			onThread(t, func(b *build) {
				source := b.dir("source")
				b.must(unix.Mount("tmpfs", source, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, ""))
				m := bindOf(source, "/data", test.flags)
				m.ClearedFlags = test.cleared
				b.config.Mounts = []*configs.Mount{m}
				b.all()
				if got := b.options("/data"); got != test.want {
					b.Errorf("options are %q, want %q", got, test.want)
				}
			})
		})
	}
}

// TestBindRecursive proves that the mounts below a source come with it only if it
// is recursive, and that recursive attributes are for them too.
func TestBindRecursive(t *testing.T) {
	onThread(t, func(b *build) {
		source := b.dir("source")
		b.must(unix.Mount("tmpfs", source, "tmpfs", 0, ""))
		b.dir("source/below")
		b.must(unix.Mount("tmpfs", source+"/below", "tmpfs", 0, ""))
		b.file("source/below/marker", "")
		rro := bindOf(source, "/rro", unix.MS_REC)
		rro.RecAttr = &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		b.config.Mounts = []*configs.Mount{
			bindOf(source, "/flat", 0), bindOf(source, "/deep", unix.MS_REC), rro, bindOf(source, "/ro", unix.MS_REC|unix.MS_RDONLY),
		}
		b.all()
		for dir, want := range map[string]bool{"/flat/below": false, "/deep/below": true, "/rro/below": true} {
			if _, err := os.Stat(dir + "/marker"); (err == nil) != want {
				b.Errorf("mount in %s: %v, want it there: %v", dir, err, want)
			}
		}
		for dir, want := range map[string]bool{"/deep/below": false, "/rro": true, "/rro/below": true, "/ro": true, "/ro/below": false} {
			b.readonly(dir, want)
		}
	})
}

// TestRemount proves that a bind mount with "remount" changes the mount that is
// there, and needs one.
func TestRemount(t *testing.T) {
	onThread(t, func(b *build) {
		volume := b.dir("volume")
		b.config.Mounts = []*configs.Mount{bindOf(volume, "/data", 0), bindOf(volume, "/data", unix.MS_REMOUNT|unix.MS_NOSUID)}
		b.all()
		if got, list := b.options("/data"), b.mountinfo(); !strings.Contains(got, "nosuid") || len(list) != 2 {
			b.Errorf("options are %q, mounts %q", got, list)
		}
	})
	onThread(t, func(b *build) {
		b.config.Mounts = []*configs.Mount{bindOf(b.dir("volume"), "/data", unix.MS_REMOUNT|unix.MS_NOSUID)}
		b.refused("invalid argument")
	})
}

// TestPropagation proves the propagation of a bind mount, a tmpfs, and proc.
func TestPropagation(t *testing.T) {
	onThread(t, func(b *build) {
		shared := tmpfsAt("/tmpfs", unix.MS_RDONLY, "")
		shared.PropagationFlags = []int{unix.MS_SHARED}
		proc := procAt("/proc")
		proc.PropagationFlags = []int{unix.MS_UNBINDABLE}
		b.config.Mounts = []*configs.Mount{proc, bindOf(b.dir("volume"), "/bind", unix.MS_REC, unix.MS_SHARED|unix.MS_REC), shared}
		b.all()
		for place, want := range map[string]string{"/tmpfs": "shared:", "/bind": "shared:", "/proc": "unbindable"} {
			if got := b.options(place); !strings.Contains(got, want) {
				b.Errorf("%s has %q, want %q", place, got, want)
			}
		}
		b.readonly("/tmpfs", true)
	})
}

// TestHostsPropagation proves what a container sees of the mounts that the agent
// makes later.
func TestHostsPropagation(t *testing.T) {
	for propagation, want := range map[int]string{
		0: "master:", unix.MS_SLAVE | unix.MS_REC: "master:", unix.MS_PRIVATE | unix.MS_REC: "relatime",
	} {
		onThread(t, func(b *build) {
			b.must(unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""))
			volume := b.dir("volume") // Not in the mount that has the root, which never propagates.
			b.must(unix.Mount("tmpfs", volume, "tmpfs", 0, ""))
			// A copy of a namespace that exists as long as it is open.
			agents, err := os.Open("/proc/thread-self/ns/mnt")
			b.must(err)
			defer agents.Close()
			b.must(unix.Unshare(unix.CLONE_NEWNS))
			b.config.RootPropagation = propagation
			b.config.Mounts = []*configs.Mount{bindOf(volume, "/data", unix.MS_REC)}
			b.all()
			if got := b.options("/data"); !strings.Contains(got, want) || strings.Contains(got, "shared:") {
				b.Errorf("propagation %#x: mount has %q, want %q", propagation, got, want)
			}
		})
	}
}

// TestMountpoints proves what is made for a mount: a file for a file, directories
// for the rest, what a dangling link leads to, and in the order of the config.
func TestMountpoints(t *testing.T) {
	onThread(t, func(b *build) {
		file, volume := b.file("file", "content"), b.dir("volume")
		b.link("../run/stub.conf", "etc/resolv.conf")
		b.link("/run", "var/run")
		b.config.Mounts = []*configs.Mount{
			bindOf(file, "/a/b/file", 0), bindOf(volume, "/a/dir", 0), bindOf(file, "/a/dir/nested", 0),
			bindOf(file, "/etc/resolv.conf", 0), bindOf(file, "/var/run/secrets/token", 0),
			bindOf(file, "relative/../x", 0), bindOf(file, filepath.Join(b.config.Rootfs, "with/root"), 0),
		}
		b.all()
		for _, name := range []string{"/a/b/file", "/a/dir/nested", "/run/stub.conf", "/run/secrets/token", "/x", "/with/root"} {
			if content, err := os.ReadFile(name); string(content) != "content" {
				b.Errorf("%s has %q (%v)", name, content, err)
			}
			b.at(name)
		}
		if info, err := os.Stat("/a"); err != nil || info.Mode().Perm() != 0o755 {
			b.Errorf("directory is %v (%v)", info, err)
		}
		if target, _ := os.Readlink("/etc/resolv.conf"); target != "../run/stub.conf" {
			b.Errorf("the link leads to %q now", target)
		}
	})
	onThread(t, func(b *build) {
		file := b.file("file", "")
		b.config.Mounts = []*configs.Mount{bindOf(file, "/x", 0)}
		b.must(b.mounts())
		if info, err := os.Lstat(filepath.Join(b.root.path, "x")); err != nil || !info.Mode().IsRegular() {
			b.Errorf("mountpoint is %v (%v)", info, err)
		}
	})
}

// TestTmpfsMode proves that a tmpfs has the mode of the directory that it covers,
// unless the config has one.
func TestTmpfsMode(t *testing.T) {
	onThread(t, func(b *build) {
		for _, name := range []string{"tmp", "own"} {
			b.must(unix.Chmod(b.dir("rootfs/"+name), 0o1750))
		}
		b.config.Mounts = []*configs.Mount{tmpfsAt("/tmp", 0, ""), tmpfsAt("/own", 0, "mode=0711"), tmpfsAt("/missing", 0, "")}
		b.all()
		for path, want := range map[string]uint32{"/tmp": 0o1750, "/own": 0o711, "/missing": 0o1777} {
			var st unix.Stat_t
			b.must(unix.Stat(path, &st))
			if got := st.Mode & modeBits; got != want {
				b.Errorf("%s has mode %#o, want %#o", path, got, want)
			}
		}
		if m := b.config.Mounts[0]; m.Data != "" {
			b.Errorf("the config has changed to %q", m.Data)
		}
	})
}

// TestMountErrors proves the words of errors that users know from runc.
func TestMountErrors(t *testing.T) {
	for name, test := range map[string]struct {
		mount func(b *build) *configs.Mount
		words []string
	}{
		"missing source": {
			func(b *build) *configs.Mount { return bindOf("/no/such", "/data", 0) },
			[]string{`error mounting "/no/such" to rootfs at "/data": `, "open /no/such: no such file or directory"},
		},
		"directory onto file": {
			func(b *build) *configs.Mount {
				b.file("rootfs/file", "")
				return bindOf(b.dir("volume"), "/file", unix.MS_REC)
			},
			[]string{"mount src=", ", dst=/file, flags=MS_BIND|MS_REC: not a directory"},
		},
		"file onto directory": {
			func(b *build) *configs.Mount { b.dir("rootfs/dir"); return bindOf(b.file("file", ""), "/dir", 0) },
			[]string{": not a directory"},
		},
		"unknown type": {
			func(b *build) *configs.Mount {
				return &configs.Mount{Source: "src", Destination: "/dst", Device: "nosuchfs", Data: "a=b"}
			},
			[]string{`error mounting "src" to rootfs at "/dst": mount src=src, dst=/dst, data=a=b: no such device`},
		},
		"no bind flag": {
			func(b *build) *configs.Mount {
				return &configs.Mount{Source: b.dir("volume"), Destination: "/dst", Device: "bind"}
			},
			[]string{"no such device"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onThread(t, func(b *build) {
				b.config.Mounts = []*configs.Mount{test.mount(b)}
				b.refused(test.words...)
			})
		})
	}
}

// TestMissingInner proves that a container whose process has made no proc is
// refused.
func TestMissingInner(t *testing.T) {
	onThread(t, func(b *build) {
		b.config.Mounts = []*configs.Mount{procAt("/proc")}
		root, err := Open(b.config)
		b.must(err)
		b.root = root
		if err := root.Mount(nil); err == nil || !strings.Contains(err.Error(), `error mounting "proc" to rootfs at "/proc"`) {
			b.Errorf("error %v", err)
		}
	})
}

// TestOpenErrors proves the words for a root that does not exist.
func TestOpenErrors(t *testing.T) {
	onThread(t, func(b *build) {
		b.config.Rootfs = filepath.Join(b.outer, "missing")
		b.refused("error preparing rootfs: ", "no such file or directory")
	})
}
