package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// setSub sets which part of the volume at root the source is.
func (c *classifier) setSub(v *Volume, src source, root string) error {
	sub, err := c.mounts.below(root, src.path)
	if err != nil {
		return fmt.Errorf("find it in its volume %s: %w", root, err)
	}
	if sub == "" {
		return nil
	}
	if !src.info.IsDir() {
		return fmt.Errorf("a part of the volume %s that is not a directory on the host cannot be made in the guest, where the volume is: %w",
			root, errdefs.ErrInvalidArgument)
	}
	var st unix.Stat_t
	if err := unix.Stat(src.path, &st); err != nil {
		return fmt.Errorf("inspect source: %w", err)
	}
	owner := Owner{Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid}
	v.Sub, v.SubMode = sub, owner.mapped(v.IDMap)
	return nil
}

// mountTable is the host's mounts, read on first use: there may be thousands.
type mountTable struct{ byID map[int]*mountinfo.Info }

// below returns path relative to the directory dir, "" for dir itself. path may
// be in another mount of dir's file system, as with a subPath: the kernel shows
// where in its file system a mount begins (proc_pid_mountinfo(5)).
func (t *mountTable) below(dir, path string) (string, error) {
	if rest, ok := within(dir, path); ok {
		return rest, nil
	}
	outer, err := t.inFileSystem(dir)
	if err != nil {
		return "", err
	}
	inner, err := t.inFileSystem(path)
	if err != nil {
		return "", err
	}
	rest, ok := within(outer.path, inner.path)
	if !ok || outer.major != inner.major || outer.minor != inner.minor {
		return "", fmt.Errorf("%s is %s, and not below %s, which is %s: %w", path, inner, dir, outer, errdefs.ErrInvalidArgument)
	}
	return rest, nil
}

// place locates a directory or a file in its file system.
type place struct {
	major, minor int
	path         string
}

func (p place) String() string {
	return fmt.Sprintf("%s on file system %d:%d", p.path, p.major, p.minor)
}

// deleted ends the root of a mount whose directory was removed
// (fs/d_path.c, dentry_path).
const deleted = "//deleted"

func (t *mountTable) inFileSystem(path string) (place, error) {
	m, err := t.mountOf(path)
	if err != nil {
		return place{}, err
	}
	if strings.HasSuffix(m.Root, deleted) {
		return place{}, fmt.Errorf("%s was removed from its volume: %w", path, errdefs.ErrNotFound)
	}
	rest, ok := within(m.Mountpoint, path)
	if !ok {
		return place{}, fmt.Errorf("%s is not below its mount %s: %w", path, m.Mountpoint, errdefs.ErrFailedPrecondition)
	}
	return place{major: m.Major, minor: m.Minor, path: filepath.Join(m.Root, rest)}, nil
}

// mountOf returns the mount to which a path leads; the id distinguishes it from
// others that it covers.
func (t *mountTable) mountOf(path string) (*mountinfo.Info, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st); err != nil {
		return nil, fmt.Errorf("statx %s: %w", path, err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return nil, fmt.Errorf("a subPath needs a kernel that reports mount ids (Linux 5.8): %w", errdefs.ErrNotImplemented)
	}
	if err := t.read(); err != nil {
		return nil, err
	}
	m, ok := t.byID[int(st.Mnt_id)]
	if !ok {
		return nil, fmt.Errorf("mount %d of %s is not in the mount table: %w", st.Mnt_id, path, errdefs.ErrNotFound)
	}
	return m, nil
}

func (t *mountTable) read() error {
	if t.byID != nil {
		return nil
	}
	list, err := mountinfo.GetMounts(nil)
	if err != nil {
		return errors.Join(errors.New("read mount table"), err)
	}
	t.byID = make(map[int]*mountinfo.Info, len(list))
	for _, m := range list {
		t.byID[m.ID] = m
	}
	return nil
}
