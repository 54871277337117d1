package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// kernelFS is a file system with a place below /proc or /sys.
type kernelFS struct{ place, fstype string }

// kernelFilesystems are those that systemd mounts on a host. Programs that trace the
// kernel have these places bound into their containers. The guest mounts one when the
// first container asks for it.
var kernelFilesystems = []kernelFS{
	{"/proc/sys/fs/binfmt_misc", "binfmt_misc"},
	{"/sys/fs/bpf", "bpf"},
	{"/sys/fs/fuse/connections", "fusectl"},
	{"/sys/kernel/config", "configfs"},
	{"/sys/kernel/debug", "debugfs"},
	{"/sys/kernel/security", "securityfs"},
	{"/sys/kernel/tracing", "tracefs"},
}

// kernelMounts mounts kernelFilesystems. The zero value is ready.
type kernelMounts struct {
	mu sync.Mutex // a second bpf would hide the first
	// mount is (kernelFS).mount unless a test sets it.
	mount func(kernelFS) error
}

// provide mounts the file systems from which the bind mounts are. Where one cannot be
// mounted, as with the kernel's parameter debugfs=off, a container gets its empty place, as
// on a host.
func (k *kernelMounts) provide(mounts []specs.Mount) {
	k.mu.Lock()
	defer k.mu.Unlock()
	mount := k.mount
	if mount == nil {
		mount = kernelFS.mount
	}
	for _, fs := range kernelFilesystems {
		if !slices.ContainsFunc(mounts, fs.isSourceOf) {
			continue
		}
		if err := mount(fs); err != nil {
			log.L.WithError(err).Warnf("%s cannot be mounted at the guest's %s, which stays empty", fs.fstype, fs.place)
		}
	}
}

func (fs kernelFS) isSourceOf(m specs.Mount) bool {
	source := filepath.Clean(m.Source)
	return isBind(&m) && (source == fs.place || strings.HasPrefix(source, fs.place+"/"))
}

// mount mounts the file system unless something is mounted at its place. One that this
// kernel does not have is no error: it has no such place either, which checkSources says.
func (fs kernelFS) mount() error {
	// The kernel loads the module now; it may make the place.
	made, err := unix.Fsopen(fs.fstype, unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(made)
	if mounted, err := isMountpoint(fs.place); mounted || errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return err
	}
	if err := unix.FsconfigSetString(made, "source", fs.fstype); err != nil { // what /proc/mounts shows
		return fmt.Errorf("set source: %w", err)
	}
	if fs.fstype == "bpf" { // As systemd does: by default every user may write to it.
		if err := unix.FsconfigSetString(made, "mode", "0700"); err != nil {
			return fmt.Errorf("set mode: %w", err)
		}
	}
	if err := unix.FsconfigCreate(made); err != nil {
		return err
	}
	tree, err := unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return unix.MoveMount(tree, "", unix.AT_FDCWD, fs.place, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// isMountpoint reports whether a directory is on another file system than its parent.
func isMountpoint(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := unix.Stat(filepath.Dir(dir), &above); err != nil {
		return false, &os.PathError{Op: "stat", Path: filepath.Dir(dir), Err: err}
	}
	return here.Dev != above.Dev, nil
}
