package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// deviceWait bounds how long a storage's device may take to appear: a
// hot-plugged one is seen within 0.3 s, with room for a loaded host.
const (
	deviceWait = 10 * time.Second
	devicePoll = 10 * time.Millisecond
)

// storageKind is how a driver of api.Storage is mounted.
type storageKind struct {
	fstype, module string
	// late says that the device may still be on its way.
	late bool
}

var storageKinds = map[string]storageKind{
	"virtio-fs": {fstype: "virtiofs", module: "virtiofs", late: true},
	"tmpfs":     {fstype: "tmpfs"},
}

// Mounter mounts storages.
type Mounter struct {
	Modules *Modules
}

// Mount mounts the storages in order; when one fails, those before it are
// unmounted again. It blocks until devices are there, deviceWait at most.
func (m *Mounter) Mount(ctx context.Context, storages []*api.Storage) error {
	for i, s := range storages {
		if err := m.mountOne(ctx, s); err != nil {
			return errors.Join(err, m.Unmount(storages[:i]))
		}
	}
	return nil
}

func (m *Mounter) mountOne(ctx context.Context, s *api.Storage) error {
	kind, ok := storageKinds[s.GetDriver()]
	if !ok {
		return fmt.Errorf("mount storage on %s: unknown driver %q", s.GetTarget(), s.GetDriver())
	}
	if err := checkTarget(s.GetTarget()); err != nil {
		return err
	}
	if kind.module != "" {
		if err := m.Modules.Demand(kind.module); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(s.GetTarget(), 0o755); err != nil {
		return fmt.Errorf("make storage target: %w", err)
	}
	source := s.GetSource()
	if source == "" {
		source = kind.fstype
	}
	flags, data := parseMountOptions(s.GetOptions())
	if err := mountWhenThere(ctx, kind, source, s.GetTarget(), flags, data); err != nil {
		return fmt.Errorf("mount %s %s on %s: %w", kind.fstype, source, s.GetTarget(), err)
	}
	return nil
}

// mountWhenThere retries while the kernel says that it does not know the
// device: EINVAL for a virtio-fs tag (fs/fuse/virtio_fs.c, virtio_fs_get_tree).
func mountWhenThere(ctx context.Context, kind storageKind, source, target string, flags uintptr, data string) error {
	ctx, cancel := context.WithTimeout(ctx, deviceWait)
	defer cancel()
	for {
		err := unix.Mount(source, target, kind.fstype, flags, data)
		absent := errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)
		if err == nil || !kind.late || !absent {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(devicePoll):
		}
	}
}

// checkTarget keeps storages below the agent's own directory, where no mount
// can hide a part of the running system.
func checkTarget(target string) error {
	if path.Clean(target) != target || !strings.HasPrefix(target, api.GuestRunDir+"/") {
		return fmt.Errorf("mount storage: target %q is not a clean path below %s", target, api.GuestRunDir)
	}
	return nil
}

// Unmount undoes Mount, in reverse order. A storage that is not mounted is
// not an error.
func (m *Mounter) Unmount(storages []*api.Storage) error {
	var errs []error
	for i := len(storages) - 1; i >= 0; i-- {
		target := storages[i].GetTarget()
		err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", target, err))
			continue
		}
		_ = os.Remove(target) // Still in use by another storage: left alone.
	}
	return errors.Join(errs...)
}
