package volume

import (
	"fmt"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/filesync"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// Kind is a way into the guest.
type Kind int

// The kinds.
const (
	// Shared volumes are in the share.
	Shared Kind = iota
	// Copied ones are files in the guest that follow the host's.
	Copied
	// Memory is a tmpfs of the guest's that the pod's containers share.
	Memory
	// Hugepages is a hugetlbfs of the guest's, likewise.
	Hugepages
	// Image is a disk whose file is in the volume's directory; the pod's
	// containers share what is mounted of it.
	Image
	// Direct is a disk that somebody assigned to the volume's path.
	Direct
	// Socket is a UNIX socket in the guest, whose connections go to one of the
	// host's.
	Socket
)

// Limits are what a Copied volume may have: it takes the guest's memory, and is
// read again whenever one of its files changes. A Secret or ConfigMap has at
// most 1 MiB (Kubernetes, pkg/apis/core/validation); a projected volume is
// made of several.
var Limits = filesync.Limits{Files: 1024, Bytes: 4 << 20}

// Volume is one bind mount of a container's and how it gets there.
type Volume struct {
	guestspec.Bind
	Kind Kind
	// Key is the same for all mounts of one volume: Memory, Hugepages and
	// Image are made once for the pod.
	Key string
	// Sub is the path below the volume that is meant, without a leading slash;
	// empty for all of it. (Kubernetes' subPath.) SubMode is the directory's mode
	// and owner where it is to be made. A Shared or Copied volume has none: its
	// Source is the part already.
	Sub     string
	SubMode Owner
	// Options are mount options of Memory and Hugepages. Without a size= the
	// volume has no limit of its own.
	Options []string
	// Back is set for a Copied file whose content in the guest is the host's when
	// the container has ended.
	Back bool
	// Disk is what an Image or Direct volume is on.
	Disk Disk
	// Socket is what the guest's socket is to be like; of a Socket volume.
	Socket SocketFile
}

// Owner is the mode (permission bits, set-group-id and so on, as in stat(2))
// and the owner of a directory.
type Owner struct{ Mode, UID, GID uint32 }

// SocketFile is what is to be seen of a UNIX socket.
type SocketFile struct {
	Owner
	// Seqpacket is set for SOCK_SEQPACKET, else it is SOCK_STREAM.
	Seqpacket bool
}

// Disk is a file system on a disk.
type Disk struct {
	// Path is a file or block device of the host.
	Path     string
	ReadOnly bool
	Fstype   string
	Options  []string
	// Group is who gets the files, or nil.
	Group *api.FSGroup
}

// Options say what there is and what is wanted.
type Options struct {
	// Share is set when there is a shared file system.
	Share bool
	// KubeletDir is the kubelet's directory.
	KubeletDir string
	// ImageDirs makes volumes on the host's disk that live as long as their pod
	// (emptyDir) Images and not Shared ones.
	ImageDirs bool
}

// Classify says for each bind how it gets into the guest. It looks at the
// host's files and changes none. What cannot get there is an error that names
// the bind's source.
func Classify(binds []guestspec.Bind, opts Options) ([]Volume, error) {
	c := newClassifier(opts, direct.Default)
	volumes := make([]Volume, 0, len(binds))
	for _, b := range binds {
		v, err := c.classify(b)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", b.Source, err)
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}
