package files

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// Tree is a directory below which the host changes files. Its methods may be
// called from any goroutine.
type Tree struct {
	root string

	mu sync.Mutex // Held while one change is made; guards partials.
	// partials are the incomplete files, oldest first.
	partials []*partial
}

// New makes the Tree of a directory, which need not exist yet.
func New(root string) *Tree { return &Tree{root: root} }

// Change makes the changes in order. It stops at the first that fails; those
// before it stay. It blocks as long as the file system does.
func (t *Tree) Change(ctx context.Context, changes []*api.FileChange) error {
	root, err := unix.Open(t.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.root, err)
	}
	defer unix.Close(root)
	for _, c := range changes {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("change files: %w", err)
		}
		if err := t.change(root, c); err != nil {
			return fmt.Errorf("change %.200q: %w", c.GetPath(), withKind(err))
		}
	}
	return nil
}

// Close drops the incomplete files.
func (t *Tree) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.partials) > 0 {
		t.dropAt(0)
	}
}

func (t *Tree) change(root int, c *api.FileChange) error {
	rel, err := t.relative(c.GetPath())
	if err != nil {
		return err
	}
	if err := checkOwner(c); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropOld()
	if c.GetFile() == nil {
		t.drop(rel)
	}
	dir, err := openParent(root, rel)
	if c.GetRemove() != nil && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) {
		return nil
	}
	if err != nil {
		t.drop(rel)
		return err
	}
	defer unix.Close(dir)
	at := place{dir: dir, name: path.Base(rel)}
	switch change := c.GetChange().(type) {
	case *api.FileChange_Directory:
		return at.makeDirectory(c)
	case *api.FileChange_File:
		return t.addPart(at, rel, c)
	case *api.FileChange_Symlink:
		return at.makeSymlink(change.Symlink)
	case *api.FileChange_Remove:
		return at.remove()
	default:
		return fmt.Errorf("it names no change: %w", errdefs.ErrInvalidArgument)
	}
}

// The kernel's limits on names (include/uapi/linux/limits.h); PATH_MAX counts
// the end of the string.
const (
	maxPath = unix.PathMax - 1
	maxName = 255
)

// relative checks a path and returns it relative to the tree.
func (t *Tree) relative(full string) (string, error) {
	rel, below := strings.CutPrefix(full, t.root+"/")
	switch {
	case !below || rel == "" || path.Clean(full) != full:
		return "", fmt.Errorf("want a clean path below %s: %w", t.root, errdefs.ErrInvalidArgument)
	case len(full) > maxPath:
		return "", fmt.Errorf("the path has %d bytes, want at most %d: %w", len(full), maxPath, errdefs.ErrInvalidArgument)
	case strings.Contains(full, "\x00"):
		return "", fmt.Errorf("the path has a zero byte: %w", errdefs.ErrInvalidArgument)
	}
	for name := range strings.SplitSeq(rel, "/") {
		if len(name) > maxName {
			return "", fmt.Errorf("a name in the path has %d bytes, want at most %d: %w", len(name), maxName, errdefs.ErrInvalidArgument)
		}
	}
	return rel, nil
}

// checkOwner checks mode and owner. Ids of all ones mean "unchanged" to
// chown(2).
func checkOwner(c *api.FileChange) error {
	const allBits, noID = 0o7777, 1<<32 - 1
	if c.GetMode()&^allBits != 0 {
		return fmt.Errorf("mode is %#o, want at most %#o: %w", c.GetMode(), allBits, errdefs.ErrInvalidArgument)
	}
	if c.GetUid() == noID || c.GetGid() == noID {
		return fmt.Errorf("owner is %d:%d, want ids below %d: %w", c.GetUid(), c.GetGid(), uint32(noID), errdefs.ErrInvalidArgument)
	}
	return nil
}

// withKind gives a kernel error its errdefs kind.
func withKind(err error) error {
	for errno, kind := range map[unix.Errno]error{
		unix.ENOENT: errdefs.ErrNotFound, unix.ELOOP: errdefs.ErrInvalidArgument, unix.EINVAL: errdefs.ErrInvalidArgument,
		unix.ENOTDIR: errdefs.ErrFailedPrecondition, unix.EISDIR: errdefs.ErrFailedPrecondition,
		unix.ENOTEMPTY: errdefs.ErrFailedPrecondition, unix.EBUSY: errdefs.ErrFailedPrecondition, unix.EROFS: errdefs.ErrFailedPrecondition,
		unix.ENOSPC: errdefs.ErrResourceExhausted, unix.EDQUOT: errdefs.ErrResourceExhausted,
	} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w (%w)", err, kind)
		}
	}
	return err
}
