package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// layersSuffix is added to a root file system's path to name the directory for
// the mounts that a template needs, each at its number.
const layersSuffix = ".layers"

// MountHost mounts an engine's mounts on the host, in order, at target, which
// must exist. Those that a template needs are mounted beside target
// (UnmountHost). On an error mounts may be left at target and for UnmountHost.
func MountHost(mounts []*types.Mount, target string) error {
	if _, err := understand(mounts); err != nil {
		return err
	}
	last := len(mounts) - 1
	layered := last > 0 && isTemplate(mounts[last])
	for i, m := range mounts {
		at := target
		if layered && i < last {
			at = layer(target, i)
			if err := os.MkdirAll(at, 0o700); err != nil {
				return fmt.Errorf("make mount point: %w", err)
			}
		}
		f, err := fill(mounts, i, func(i int) string { return layer(target, i) })
		if err != nil {
			return err
		}
		if err := f.mount(m.GetTarget(), at); err != nil {
			return fmt.Errorf("mount %d, type %s, source %s: %w", i, m.GetType(), m.GetSource(), err)
		}
	}
	return nil
}

// UnmountHost removes what MountHost has mounted beside target. Unmount target
// first. It is no error if nothing is there.
func UnmountHost(target string) error {
	dir := target + layersSuffix
	layers, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list mounts of layers: %w", err)
	}
	for _, l := range slices.Backward(layers) {
		at := filepath.Join(dir, l.Name())
		if err := mount.UnmountAll(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount layer %s: %w", at, err)
		}
		// Not RemoveAll: if a mount is still there, its files must stay.
		if err := os.Remove(at); err != nil {
			return fmt.Errorf("remove mount point of layer: %w", err)
		}
	}
	return os.Remove(dir)
}

func layer(target string, i int) string { return filepath.Join(target+layersSuffix, strconv.Itoa(i)) }

// mount makes the directories, then mounts at at, or at sub below it.
func (f filled) mount(sub, at string) error {
	for _, d := range f.dirs {
		if err := d.make(); err != nil {
			return fmt.Errorf("make directory %s: %w", d.path, err)
		}
	}
	m := mount.Mount{Type: f.fstype, Source: f.source, Target: sub, Options: f.options}
	if f.fstype == "erofs" {
		devices, err := attachDevices(m.Options)
		defer devices.close()
		if err != nil {
			return err
		}
	}
	return m.Mount(at)
}

// make makes a directory in a mounted layer. The container can write to the
// layer and may have put a symbolic link there.
func (d dir) make() error {
	at, name := filepath.Split(filepath.Clean(d.path))
	root, err := os.OpenRoot(at)
	if err != nil {
		return err
	}
	defer root.Close()
	err = root.Mkdir(name, fs.FileMode(d.mode))
	if errors.Is(err, fs.ErrExist) {
		return checkDirectory(root, name)
	}
	if err == nil {
		err = root.Chmod(name, fs.FileMode(d.mode)) // The umask was applied to the mode.
	}
	if err != nil || d.uid < 0 {
		return err
	}
	return root.Lchown(name, d.uid, d.gid)
}

func checkDirectory(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("it exists and is not a directory: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// loops are loop devices, each until its last user closes it.
type loops []*os.File

func (l loops) close() {
	for _, f := range l {
		f.Close()
	}
}

// attachDevices attaches loop devices to the other files of an erofs, as the
// option loop does to its first, and names them in its options. The caller
// closes them when the file system is mounted.
func attachDevices(options []string) (l loops, err error) {
	for i, o := range options {
		path, ok := strings.CutPrefix(o, "device=")
		if !ok {
			continue
		}
		f, err := mount.SetupLoop(path, mount.LoopParams{Readonly: true, Autoclear: true})
		if err != nil {
			return l, fmt.Errorf("attach device %s: %w", path, err)
		}
		l = append(l, f)
		options[i] = "device=" + f.Name()
	}
	return l, nil
}
