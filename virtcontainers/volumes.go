package virtcontainers

import (
	"context"

	"github.com/katabox/katabox/virtcontainers/guestfs"
)

// VolumeStats returns the size and use of a direct-assigned volume, as the guest
// reports them. path is the volume's or its device's. It fails with
// errdefs.ErrNotFound if no container of the pod has the volume mounted, and with
// errdefs.ErrUnavailable while the pod hibernates.
func (s *Sandbox) VolumeStats(ctx context.Context, path string) (guestfs.AssignedVolume, error) {
	if _, err := s.agent(); err != nil {
		return guestfs.AssignedVolume{}, err
	}
	if err := s.files.CheckVolume(path); err != nil {
		return guestfs.AssignedVolume{}, err
	}
	leave, ok := s.sleeper.tryEnter()
	if !ok {
		return guestfs.AssignedVolume{}, errHibernates
	}
	defer leave()
	return s.files.VolumeStats(ctx, path)
}

// GrowVolume makes a direct-assigned volume larger while containers use it, and
// returns how many bytes its disk has then. path is the volume's or its
// device's. A block device must have been grown on the host; a file is grown to
// size bytes. With size 0 the volume gets the size of its device or file. It fails
// with errdefs.ErrNotFound if no container of the pod has the volume. kata-runtime
// queries all pods of the host: one that hibernates wakes only for its own volumes.
func (s *Sandbox) GrowVolume(ctx context.Context, path string, size uint64) (uint64, error) {
	if err := s.files.CheckVolume(path); err != nil {
		return 0, err
	}
	leave, err := s.sleeper.enter(ctx, "a call to grow volume "+path)
	if err != nil {
		return 0, err
	}
	defer leave()
	if _, err := s.agent(); err != nil {
		return 0, err
	}
	return s.files.GrowVolume(ctx, path, size)
}
