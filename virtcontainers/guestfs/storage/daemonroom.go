package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
)

// programDirs are where a daemon's interpreter and libraries are, and a shell
// if it is a script: the usual directories, NixOS's, Guix's.
var programDirs = []string{"/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/nix/store", "/gnu/store"}

// daemonRoom is what an external daemon needs in the space to start: its
// executable, interpreter, libraries. They are read-only, and beside the share,
// which the daemon makes its root directory. Once it has, they are removed,
// with /proc: no directory that it holds open leads out of the share then.
type daemonRoom struct {
	space  *space
	mounts *os.File
	names  []string // in the space, in the order of their making
	share  fs.FileInfo
}

// newDaemonRoom prepares a space for a share's daemon. executable is a path
// without symbolic links.
func newDaemonRoom(ctx context.Context, sp *space, share, executable string) (_ *daemonRoom, err error) {
	r := &daemonRoom{space: sp}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
			defer cancel()
			err = errors.Join(err, r.strip(ctx), r.close())
		}
	}()
	if r.mounts, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/mnt", sp.tid)); err != nil {
		return nil, err
	}
	noFile := func(fs.FileInfo) error { return nil }
	if r.share, err = ask(ctx, sp, func() (fs.FileInfo, error) { return os.Stat(share) }, noFile); err != nil {
		return nil, err
	}
	self, name, err := child.CloneSelf()
	if err != nil {
		return nil, err
	}
	if err := r.add(ctx, self, name); err != nil {
		return nil, err
	}
	for _, path := range programPaths(executable) {
		if err := r.show(ctx, path); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// programPaths are the host's directories and files that a daemon needs.
func programPaths(executable string) []string {
	paths := programDirs
	for _, dir := range programDirs {
		if strings.HasPrefix(executable, dir+"/") {
			return paths
		}
	}
	if dir := filepath.Dir(executable); dir != "/" {
		return append(paths[:len(paths):len(paths)], dir)
	}
	return append(paths[:len(paths):len(paths)], executable)
}

// show makes a path of the host visible in the space under the same name, if it
// exists.
func (r *daemonRoom) show(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find what virtiofsd needs: %w", err)
	}
	if info.Mode().Type() == fs.ModeSymlink { // /lib, where it is in /usr
		to, err := os.Readlink(path)
		if err != nil {
			return fmt.Errorf("find what virtiofsd needs: %w", err)
		}
		return r.space.do(ctx, func() error {
			r.names = append(r.names, path)
			return os.Symlink(to, path)
		})
	}
	tree, err := cloneMount(path, false)
	if err != nil {
		return err
	}
	return r.add(ctx, tree, path)
}

// add mounts a tree, which it closes, in the space, read-only.
func (r *daemonRoom) add(ctx context.Context, tree *os.File, path string) error {
	info, err := tree.Stat()
	if err != nil {
		return errors.Join(err, tree.Close())
	}
	const flags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	err = r.space.do(ctx, func() error {
		r.names = append(r.names, path)
		if err := makeMountPoint(path, info.IsDir()); err != nil {
			return err
		}
		if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return os.NewSyscallError("move_mount", err)
		}
		return errors.Join(unix.Mount("", path, "", unix.MS_PRIVATE, ""), unix.Mount("", path, "", flags, ""))
	}, tree.Close)
	if err != nil {
		return fmt.Errorf("show %s to virtiofsd: %w", path, err)
	}
	return nil
}

// room is where the daemon starts.
func (r *daemonRoom) room() *child.Room {
	return &child.Room{Mounts: r.mounts, Root: r.space.root}
}

// entered reports whether the share is a process's root directory.
func (r *daemonRoom) entered(pid int) bool {
	root, err := os.Stat(fmt.Sprintf("/proc/%d/root", pid))
	return err == nil && os.SameFile(root, r.share)
}

// strip removes everything. The daemon keeps what it has mapped and opened, but
// its open directory of /proc no longer leads upwards.
func (r *daemonRoom) strip(ctx context.Context) error {
	return r.space.do(ctx, func() error {
		for _, name := range slices.Backward(append(r.names, child.ProcSelf)) {
			err := unix.Unmount(name, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
				err = nil // a link, or not made
			}
			if err != nil {
				return fmt.Errorf("hide %s from virtiofsd: %w", name, err)
			}
			_ = os.Remove(name) // an empty mount point does no harm
		}
		r.names = nil
		return os.RemoveAll(child.Proc)
	})
}

func (r *daemonRoom) close() error {
	if r.mounts == nil {
		return nil
	}
	return r.mounts.Close()
}
