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

// layersSuffix is the directory beside a root file system that what a template
// needs is mounted in, each mount at its number.
const layersSuffix = ".layers"

// MountHost mounts on the host what an engine handed over, in order, at target,
// which must be there. What comes before a template is mounted beside target
// (UnmountHost). On an error something may be left for UnmountHost, and at
// target.
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

// UnmountHost takes away what MountHost has mounted beside target. Unmount
// target before. Nothing there is no error.
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
		// Not all below it: should a mount still be there, its files stay.
		if err := os.Remove(at); err != nil {
			return fmt.Errorf("remove mount point of layer: %w", err)
		}
	}
	return os.Remove(dir)
}

func layer(target string, i int) string { return filepath.Join(target+layersSuffix, strconv.Itoa(i)) }

// mount makes the directories and mounts at a directory, or below it in sub.
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

// make makes a directory of a mounted layer. The layer is the container's,
// which may have put a symbolic link there.
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
		err = root.Chmod(name, fs.FileMode(d.mode)) // The umask has taken some of it.
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

// attachDevices makes loop devices of the further files of an erofs, as the
// option loop does of the first one, and names them in its options. They are
// the caller's to close when the file system is mounted.
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
