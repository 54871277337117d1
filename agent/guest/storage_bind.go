package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/files"
)

// mountBind mounts a part of a volume. Containers may change the volume at any
// time: a symbolic link from one must not lead another into the guest's files.
// So the part is opened without following links, and the opened part is
// mounted. With the options mode=, uid= and gid= a missing directory and its
// missing parents are made.
func (m *Mounter) mountBind(ctx context.Context, s *api.Storage) error {
	if err := m.makePart(ctx, s); err != nil {
		return fmt.Errorf("make source: %w", err)
	}
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

// makePart makes a source's missing directories, if its options give their mode
// and owner.
func (m *Mounter) makePart(ctx context.Context, s *api.Storage) error {
	if len(s.GetOptions()) == 0 {
		return nil
	}
	var c api.FileChange
	if _, err := fmt.Sscanf(strings.Join(s.GetOptions(), ","), "mode=%o,uid=%d,gid=%d", &c.Mode, &c.Uid, &c.Gid); err != nil {
		return fmt.Errorf("options %.100q, want mode=, uid= and gid=: %w", s.GetOptions(), errdefs.ErrInvalidArgument)
	}
	var missing []*api.FileChange
	for at := s.GetSource(); at != m.filesDir() && strings.HasPrefix(at, m.filesDir()); at = filepath.Dir(at) {
		missing = append(missing, &api.FileChange{
			Path: at, Mode: c.Mode, Uid: c.Uid, Gid: c.Gid,
			Change: &api.FileChange_Directory{Directory: &api.Directory{Keep: true}},
		})
	}
	slices.Reverse(missing)
	return files.New(m.filesDir()).Change(ctx, missing)
}

// filesDir returns the directory that parts of volumes must be below.
func (m *Mounter) filesDir() string {
	return m.run + strings.TrimPrefix(api.GuestFilesDir, api.GuestRunDir)
}

// openPart opens a detached copy of the mount at a path below the directory of
// files (open_tree(2)).
func (m *Mounter) openPart(path string) (int, error) {
	top := m.filesDir()
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
		return -1, fmt.Errorf("%s does not exist: %w", path, errdefs.ErrNotFound)
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

// makePoint makes a mount point for an open file: a directory, or an empty
// file.
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
