package volume

import (
	"context"
	"fmt"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/virtcontainers/guestfs/filesync"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// Kind is how a volume gets into the guest.
type Kind int

// The kinds.
const (
	// Shared volumes are in the share.
	Shared Kind = iota
	// Copied ones are files in the guest that follow the host's.
	Copied
	// Memory is a tmpfs in the guest that the pod's containers share.
	Memory
	// Hugepages is a hugetlbfs in the guest, shared likewise.
	Hugepages
	// Image is a disk whose file is in the volume's directory; the pod's
	// containers share its mount.
	Image
	// Direct is a disk that was assigned to the volume's path.
	Direct
	// Socket is a UNIX socket in the guest whose connections go to one on the
	// host.
	Socket
	// Device is a block device: a disk, of which the container gets a node.
	Device
)

// Limits bound a Copied volume: it takes the guest's memory, and is read again
// whenever one of its files changes. A Secret or ConfigMap has at most 1 MiB
// (Kubernetes, pkg/apis/core/validation); a projected volume is made of
// several.
var Limits = filesync.Limits{Files: 1024, Bytes: 4 << 20}

// Volume is one bind mount of a container and how it gets into the guest.
type Volume struct {
	guestspec.Bind
	Kind Kind
	// Key is the same for all mounts of one volume: Memory, Hugepages and
	// Image are made once for the pod.
	Key string
	// Sub is the path within the volume, without a leading slash; empty for the
	// whole volume. (Kubernetes' subPath.) SubMode is the directory's mode and
	// owner in case it must be made. A Shared or Copied volume has neither: its
	// Source is already the part.
	Sub     string
	SubMode Owner
	// Options are mount options of Memory and Hugepages. Without a size= the
	// volume has no explicit limit.
	Options []string
	// Back is set for a Copied file that is copied back to the host when the
	// container has ended.
	Back bool
	// Disk is the disk of an Image or Direct volume; of a Device it has only the path.
	Disk Disk
	// Assigned is the path to which a Direct volume's disk was assigned, as the
	// driver spelled it.
	Assigned string
	// Socket describes the guest's socket of a Socket volume.
	Socket SocketFile
}

// Owner is the mode (permission bits, set-group-id and so on, as in stat(2))
// and the owner of a directory.
type Owner struct{ Mode, UID, GID uint32 }

// SocketFile has the visible properties of a UNIX socket.
type SocketFile struct {
	Owner
	// Seqpacket is set for SOCK_SEQPACKET, otherwise the socket is SOCK_STREAM.
	Seqpacket bool
}

// Disk is a file system on a disk.
type Disk struct {
	// Path is a file or block device of the host.
	Path     string
	ReadOnly bool
	Fstype   string
	Options  []string
	// Group is the group that gets the files, or nil.
	Group *api.FSGroup
}

// Options describe the host and the configuration.
type Options struct {
	// Share is set when there is a shared file system.
	Share bool
	// KubeletDir is the kubelet's directory.
	KubeletDir string
	// ImageDirs makes emptyDir volumes on the host's disk Images instead of
	// Shared.
	ImageDirs bool
	// MemoryBytes is what the pod's containers may use together; 0 is no limit.
	MemoryBytes uint64
}

// Classify returns for each bind how it gets into the guest. It inspects the
// host's files, no longer than ctx, and changes none. If a bind cannot get there, the
// error names its source.
func Classify(ctx context.Context, binds []guestspec.Bind, opts Options) ([]Volume, error) {
	c, err := intime.Call(ctx, func() (*classifier, error) { return newClassifier(opts, direct.Default), nil }, nil)
	if err != nil {
		return nil, fmt.Errorf("find the kubelet's directory %s: %w", opts.KubeletDir, err)
	}
	volumes := make([]Volume, 0, len(binds))
	for _, b := range binds {
		v, err := intime.Call(ctx, func() (Volume, error) { return c.classify(b) }, nil)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", b.Source, err)
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}
