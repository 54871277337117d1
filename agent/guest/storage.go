package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/pci"
)

// Mounter mounts storages and finds disks. Its methods may be called from any
// goroutine.
type Mounter struct {
	Modules *Modules

	// The directories of sysfs, device nodes, proc, and of storages' targets.
	sys, dev, proc, run string
	kernel              calls

	mu sync.Mutex // guards disks
	// disks are the disks of mounted storages, by target, each until the kernel
	// has released it.
	disks map[string]diskUse

	hugepagesMu sync.Mutex // Held while the kernel finds huge pages; guards hugepages.
	// hugepages are the reserved huge pages, by the storage's target.
	hugepages map[string]hugepages
}

// diskUse is the disks as one storage uses them.
type diskUse struct {
	disks []Disk
	// released is set once the storage is unmounted.
	released bool
}

// calls are the system calls that tests replace.
type calls struct {
	mount    func(source, target, fstype string, flags uintptr, data string) error
	unmount  func(target string, flags int) error
	openDisk func(disk Disk, flags int) error
	setGroup func(ctx context.Context, target string, group *api.FSGroup) error
	write    func(path, value string) error
	grow     func(fd int, magic int64, block, bytes uint64) error
}

// NewMounter makes the guest's Mounter. modules may contain drivers and file
// systems.
func NewMounter(modules *Modules) *Mounter {
	return &Mounter{
		Modules: modules,
		sys:     "/sys", dev: "/dev", proc: "/proc", run: api.GuestRunDir,
		kernel: calls{mount: unix.Mount, unmount: unix.Unmount, openDisk: openDisk, setGroup: setGroup, write: writeFile, grow: growMounted},
		disks:  map[string]diskUse{}, hugepages: map[string]hugepages{},
	}
}

// request has a storage's arguments of mount(2).
type request struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// drivers are the ways to mount a storage, by api.Storage's driver.
var drivers = map[string]func(m *Mounter, ctx context.Context, s *api.Storage) error{
	"virtio-fs": (*Mounter).mountShare,
	"tmpfs":     (*Mounter).mountTmpfs,
	"hugetlbfs": (*Mounter).mountHugepages,
	"overlay":   (*Mounter).mountOverlay,
	"bind":      (*Mounter).mountBind,
	virtioBlk:   (*Mounter).mountDisk,
	scsi:        (*Mounter).mountDisk,
}

// Mount mounts the storages in order and changes their files to the groups that
// they name. If one fails, it and those before it are unmounted. Mount blocks until
// devices appear, pci.Timeout at most for each, and while files change their group,
// bounded by ctx.
func (m *Mounter) Mount(ctx context.Context, storages []*api.Storage) error {
	for i, s := range storages {
		if err := m.mountOne(ctx, s); err != nil {
			return errors.Join(storageError("mount storage", s, err), m.Unmount(storages[:i]))
		}
		if err := m.shareOut(ctx, s); err != nil {
			return errors.Join(storageError("storage", s, err), m.Unmount(storages[:i+1]))
		}
	}
	return nil
}

// StorageError is the error of one storage in a Mount call: the one with the
// target Target.
type StorageError struct {
	Target string
	err    error
}

func storageError(what string, s *api.Storage, err error) error {
	return &StorageError{Target: s.GetTarget(), err: fmt.Errorf("%s %s: %w", what, s.GetTarget(), err)}
}

// Error implements error.
func (e *StorageError) Error() string { return e.err.Error() }

// Unwrap returns the underlying error.
func (e *StorageError) Unwrap() error { return e.err }

// Mounted reports whether something is mounted on a target.
func (m *Mounter) Mounted(target string) (bool, error) {
	lines, err := m.readMountInfo("self")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(lines, func(fields []string) bool { return unescape(fields[4]) == target }), nil
}

// shareOut gives a mounted storage's files to the group that it names.
func (m *Mounter) shareOut(ctx context.Context, s *api.Storage) error {
	if !wantsGroup(s) {
		return nil
	}
	if err := m.kernel.setGroup(ctx, s.GetTarget(), s.GetFsGroup()); err != nil {
		return fmt.Errorf("give the files to group %d: %w", s.GetFsGroup().GetGid(), err)
	}
	return nil
}

func (m *Mounter) mountOne(ctx context.Context, s *api.Storage) error {
	mount, ok := drivers[s.GetDriver()]
	if !ok {
		return fmt.Errorf("unknown driver %.40q: %w", s.GetDriver(), errdefs.ErrInvalidArgument)
	}
	if err := m.checkPath(s.GetTarget()); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if err := checkGroup(s); err != nil {
		return err
	}
	return mount(m, ctx, s)
}

func (m *Mounter) mountTmpfs(_ context.Context, s *api.Storage) error {
	flags, data := parseMountOptions(s.GetOptions())
	return m.mount(request{sourceOr(s, "tmpfs"), s.GetTarget(), "tmpfs", flags, data})
}

// mountShare mounts a virtio-fs share, whose device may not exist yet.
func (m *Mounter) mountShare(ctx context.Context, s *api.Storage) error {
	if err := m.Modules.Demand("virtiofs"); err != nil {
		return err
	}
	flags, data := parseMountOptions(s.GetOptions())
	r := request{sourceOr(s, "virtiofs"), s.GetTarget(), "virtiofs", flags, data}
	ctx, cancel := pci.WithTimeout(ctx)
	defer cancel()
	_, err := pci.Await(ctx, func() (struct{}, error) {
		err := m.mount(r)
		// EINVAL: the kernel does not know the tag (fs/fuse/virtio_fs.c,
		// virtio_fs_get_tree).
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("%w (%w)", err, errdefs.ErrNotFound)
		}
		return struct{}{}, err
	})
	return err
}

func sourceOr(s *api.Storage, other string) string {
	if s.GetSource() != "" {
		return s.GetSource()
	}
	return other
}

// mount makes the target and mounts on it.
func (m *Mounter) mount(r request) error {
	if err := os.MkdirAll(r.target, 0o755); err != nil {
		return fmt.Errorf("make target: %w", err)
	}
	if err := m.kernel.mount(r.source, r.target, r.fstype, r.flags, r.data); err != nil {
		_ = os.Remove(r.target) // Fails if it is mounted or in use.
		return fmt.Errorf("mount %s %s: %w", r.fstype, r.source, err)
	}
	return nil
}

// checkPath keeps storages below the agent's own directory, where no mount can
// hide a part of the running system. Disks and the share are not under the
// agent's control: a symbolic link there may lead anywhere.
func (m *Mounter) checkPath(path string) error {
	rest, below := strings.CutPrefix(path, m.run+"/")
	if !below || rest == "" || filepath.Clean(path) != path {
		return fmt.Errorf("%.200q is not a clean path below %s: %w", path, m.run, errdefs.ErrInvalidArgument)
	}
	at := m.run
	for name := range strings.SplitSeq(rest, "/") {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("inspect path: %w", err)
		}
		if info.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link: %w", at, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
