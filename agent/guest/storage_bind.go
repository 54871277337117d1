package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// mountBind mounts a part of a volume, which containers may change at any time:
// a symbolic link that one puts in the way must not lead another into the
// guest's own files. So the part is opened by a way without links, and what was
// opened is mounted.
func (m *Mounter) mountBind(_ context.Context, s *api.Storage) error {
	part, err := m.openPart(s.GetSource())
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	defer unix.Close(part)
	if err := makePoint(part, s.GetTarget()); err != nil {
		return fmt.Errorf("make target: %w", err)
	}
	err = unix.MoveMount(part, "", unix.AT_FDCWD, s.GetTarget(), unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		_ = os.Remove(s.GetTarget())
		return fmt.Errorf("mount %s: %w", s.GetSource(), err)
	}
	return nil
}

// openPart opens a copy of the mount that a path below the directory of files
// is in, beginning at the path (open_tree(2)). It is mounted nowhere yet.
func (m *Mounter) openPart(path string) (int, error) {
	top := m.run + strings.TrimPrefix(api.GuestFilesDir, api.GuestRunDir)
	rel, below := strings.CutPrefix(path, top+"/")
	if !below || rel == "" || filepath.Clean(path) != path {
		return -1, fmt.Errorf("%.200q is not a clean path below %s: %w", path, top, errdefs.ErrInvalidArgument)
	}
	root, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", top, err)
	}
	defer unix.Close(root)
	at, err := unix.Openat2(root, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return -1, fmt.Errorf("%s leads over a symbolic link: %w", path, errdefs.ErrInvalidArgument)
	case errors.Is(err, unix.ENOENT):
		return -1, fmt.Errorf("%s is not there: %w", path, errdefs.ErrNotFound)
	case err != nil:
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(at)
	part, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("copy the mount at %s: %w", path, err)
	}
	return part, nil
}

// makePoint makes a directory, or an empty file, for what is open to be mounted
// on.
func makePoint(open int, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(open, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
