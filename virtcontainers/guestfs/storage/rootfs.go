package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/virtcontainers/guestfs/rootfs"
)

// mounting has the targets at which MountRootfs mounts, or has given up to.
var mounting sync.Map

// MountRootfs mounts the engine's mounts, in order, at target, which it makes
// if it is missing. Without mounts target must be a directory already: the
// engine has mounted it (iSulad, CRI-O). It reports whether there is something
// to unmount later.
//
// It waits no longer than ctx: a mount may hang with its file system. One that comes
// after all is removed then, and nothing else can be mounted at target before.
func MountRootfs(ctx context.Context, mounts []*types.Mount, target string) (bool, error) {
	if len(mounts) == 0 {
		return false, intime.Do(ctx, func() error { return checkDirectory(target) })
	}
	if _, busy := mounting.LoadOrStore(target, nil); busy {
		return false, fmt.Errorf("mount rootfs at %s: an earlier mount there has not ended: %w", target, errdefs.ErrUnavailable)
	}
	type result struct{ err error } // also an error of a mount that was given up gets to drop
	made, err := intime.Call(ctx, func() (result, error) { return result{mountRootfs(mounts, target)}, nil }, func(late result) {
		if late.err == nil {
			_ = UnmountRootfs(target)
		}
		mounting.Delete(target)
	})
	if errors.Is(err, intime.ErrUnanswered) {
		return false, fmt.Errorf("mount rootfs at %s: %w", target, err)
	}
	mounting.Delete(target)
	err = errors.Join(made.err, err)
	return err == nil, err
}

func mountRootfs(mounts []*types.Mount, target string) error {
	if err := os.MkdirAll(target, 0o711); err != nil {
		return fmt.Errorf("mount rootfs: %w", err)
	}
	if err := rootfs.MountHost(mounts, target); err != nil {
		return errors.Join(fmt.Errorf("mount rootfs at %s: %w", target, err), UnmountRootfs(target))
	}
	return nil
}

func checkDirectory(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("rootfs %s does not exist and the engine passed no mount for it: %w", path, errdefs.ErrNotFound)
	case err != nil:
		return fmt.Errorf("inspect rootfs: %w", err)
	case !info.IsDir():
		return fmt.Errorf("rootfs %s is not a directory: %w", path, errdefs.ErrInvalidArgument)
	}
	return nil
}

// SettleRootfs flushes a root file system that is a disk, and remounts it
// read-only. A guest that still has files open delays the unmount, and the
// disk's next user must find it consistent.
func SettleRootfs(target string) error {
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err == nil {
		return nil
	}
	dir, err := os.Open(target) // A process still writes: flush at least what is written now.
	if err != nil {
		return fmt.Errorf("write out rootfs: %w", err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("write out rootfs %s: %w", target, err)
	}
	return nil
}

// UnmountRootfs removes every mount at target. It is no error if target does
// not exist or has none.
func UnmountRootfs(target string) error {
	if err := mount.UnmountAll(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmount rootfs %s: %w", target, err)
	}
	if err := rootfs.UnmountHost(target); err != nil {
		return fmt.Errorf("unmount rootfs %s: %w", target, err)
	}
	return nil
}
