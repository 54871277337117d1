package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// overlaid are the directories in which engines and their tools keep files with
// fixed names: CNI's configurations and leases, policies, logins.
var overlaid = []string{"/etc", "/var/lib", "/opt"}

// makeHost turns the new namespaces into a host. Each step relies on those
// before it.
func makeHost() error {
	// sysfs shows the links of the network namespace that mounts it; it covers
	// the cgroups, which are moved aside and back.
	const aside = "/run/cgroup"
	steps := []func() error{
		// The machine must not see mounts made here.
		func() error { return mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return mount("proc", "/proc", "proc", 0, "") },
		func() error { return mount("run", "/run", "tmpfs", 0, "mode=755") },
		func() error { return mount("/sys/fs/cgroup", aside, "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return mount("sysfs", "/sys", "sysfs", 0, "") },
		func() error { return mount(aside, "/sys/fs/cgroup", "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return unix.Unmount(aside, unix.MNT_DETACH) },
		overlayAll,
		// As systemd sets it up, and engines expect it.
		func() error { return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") },
		loopbackUp,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mount is mount(2) with the mount point made first.
func mount(source, target, kind string, flags uintptr, options string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %q (%s) on %s: %w", source, kind, target, err)
	}
	return nil
}

// overlayAll mounts an overlay over each existing directory; changes go to
// /run.
func overlayAll() error {
	for _, dir := range overlaid {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		name := strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-")
		upper := filepath.Join("/run/overlay", name, "upper")
		work := filepath.Join("/run/overlay", name, "work")
		for _, d := range []string{upper, work} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return fmt.Errorf("make overlay of %s: %w", dir, err)
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)
		if err := mount("overlay", dir, "overlay", 0, options); err != nil {
			return err
		}
	}
	return nil
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}
