package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// boot turns a bare kernel into a host. problems are about what a host may
// lack; err is about what it cannot do without.
func boot(setup wire.Setup) (problems []string, err error) {
	steps := []func(wire.Setup) error{firstMounts, loadFirst, mountRoot, fillRoot, switchRoot, finish}
	for _, step := range steps {
		if err := step(setup); err != nil {
			return nil, err
		}
	}
	for _, name := range setup.Wanted {
		if out, err := exec.Command("/sbin/modprobe", name).CombinedOutput(); err != nil {
			problems = append(problems, fmt.Sprintf("load module %s: %v: %s", name, err, out))
		}
	}
	for _, path := range setup.Devices {
		if _, err := os.Stat(path); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems, nil
}

// firstMounts mounts what loading modules and finding devices needs.
func firstMounts(wire.Setup) error {
	return mountAll([]mount{
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	})
}

func loadFirst(setup wire.Setup) error {
	for _, path := range setup.Modules {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("load module: %w", err)
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("load module %s: %w", path, err)
		}
	}
	return nil
}

// Where the parts of the root are in the initramfs.
const (
	lower   = "/lower"
	changes = "/changes"
	newRoot = "/root"
)

// mountRoot lays a tmpfs over the share: the machine can change every file, and
// the share stays as it is.
func mountRoot(wire.Setup) error {
	upper, work := changes+"/upper", changes+"/work"
	return mountAll([]mount{
		{wire.RootTag, lower, "virtiofs", unix.MS_RDONLY, ""},
		{"tmpfs", changes, "tmpfs", 0, "mode=0755"},
		{"", upper, "", 0, ""},
		{"", work, "", 0, ""},
		{"overlay", newRoot, "overlay", 0, "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work},
	})
}

// fillRoot mounts what a running host has mounted, and none of the build
// machine's mounts.
func fillRoot(setup wire.Setup) error {
	keep := map[string]*os.File{}
	defer func() {
		for _, f := range keep {
			_ = f.Close()
		}
	}()
	for _, dir := range setup.Keep {
		f, err := os.OpenFile(newRoot+dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return fmt.Errorf("keep directory: %w", err)
		}
		keep[dir] = f
	}
	if err := mountAll(hostMounts(setup)); err != nil {
		return err
	}
	for dir, f := range keep {
		if err := bind(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), newRoot+dir); err != nil {
			return err
		}
	}
	if err := bind(newRoot+setup.ModuleTree, newRoot+"/lib/modules"); err != nil {
		return err
	}
	for target, source := range setup.Binds {
		if err := bind(newRoot+source, newRoot+target); err != nil {
			return err
		}
	}
	return nil
}

// hostMounts returns the mounts that systemd makes on a host with cgroup v2
// alone, and that of the results.
func hostMounts(setup wire.Setup) []mount {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	in := func(path string) string { return newRoot + path }
	return []mount{
		{"proc", in("/proc"), "proc", quiet, ""},
		{"sysfs", in("/sys"), "sysfs", quiet, ""},
		{"devtmpfs", in("/dev"), "devtmpfs", unix.MS_NOSUID, ""},
		{"devpts", in("/dev/pts"), "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
		{"tmpfs", in("/dev/shm"), "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"mqueue", in("/dev/mqueue"), "mqueue", quiet, ""},
		{"cgroup2", in("/sys/fs/cgroup"), "cgroup2", quiet, "nsdelegate"},
		{"tmpfs", in("/run"), "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"tmpfs", in("/tmp"), "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{wire.ResultsTag, in(setup.Results), "virtiofs", 0, ""},
	}
}

// switchRoot switches to the new root as switch_root(8) does: pivot_root(2)
// cannot leave the initramfs. Mounts are shared, as under systemd.
func switchRoot(wire.Setup) error {
	if err := os.Chdir(newRoot); err != nil {
		return fmt.Errorf("switch root: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("switch root: move it: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("switch root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("switch root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

// mount is one line of a mount table. Without a kind only the directory is
// made.
type mount struct {
	source, target, kind string
	flags                uintptr
	options              string
}

func mountAll(table []mount) error {
	for _, m := range table {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
		if m.kind == "" {
			continue
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s %s on %s: %w", m.kind, m.source, m.target, err)
		}
	}
	return nil
}

func bind(source, target string) error {
	if err := os.MkdirAll(filepath.Clean(target), 0o755); err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	return nil
}
