package direct

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// Info describes one volume.
type Info struct {
	// Device is the absolute path of a block device or a file of the host with
	// a file system.
	Device string
	// Fstype is that file system: "ext4", "xfs", ...
	Fstype string
	// Options are mount(8) options, one per item, without "ro" and "rw".
	Options []string
	// ReadOnly is set when the options have "ro".
	ReadOnly bool
	// Group is the group that gets the volume's files, or nil.
	Group *Group
}

// Group is Kubernetes' fsGroup.
type Group struct {
	GID uint32
	// OnRootMismatch is fsGroupChangePolicy's value of that name: only when the
	// root directory has another group or mode.
	OnRootMismatch bool
}

// document is mountInfo.json. encoding/json takes keys in any case, as
// upstream does: its own documentation writes "Device".
type document struct {
	VolumeType   string            `json:"volume-type"`
	Device       string            `json:"device"`
	Fstype       string            `json:"fstype"`
	Metadata     map[string]string `json:"metadata"`
	Options      []string          `json:"options"`
	Confidential json.RawMessage   `json:"confidential-storage"`
}

// blockTypes are the names for a disk with a file system: the one in upstream's
// documentation, runtime-rs' ("directvol"), and short forms.
var blockTypes = []string{"", "block", "blk", "directvol"}

// Metadata keys that change what a mount means. All others are private to the
// driver.
const (
	keyEncryption  = "encryptionKey"
	keyCreate      = "createFilesystem"
	keyGroup       = "fsGroup"
	keyGroupPolicy = "fsGroupChangePolicy"
)

const (
	// maxInfo bounds the document, in bytes.
	maxInfo = 64 << 10
	// maxOptions bounds the options: mount(2) takes one page of them.
	maxOptions = 4096
)

// fstypePattern matches the names of the kernel's file systems.
var fstypePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// Parse reads a mountInfo.json. An error is an errdefs.ErrInvalidArgument that
// names the key.
func Parse(data []byte) (*Info, error) {
	if len(data) > maxInfo {
		return nil, fmt.Errorf("mount info has %d bytes, want at most %d: %w", len(data), maxInfo, errdefs.ErrInvalidArgument)
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("read mount info: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	info := &Info{Device: d.Device, Fstype: d.Fstype}
	if err := info.setOptions(d.Options); err != nil {
		return nil, err
	}
	var err error
	info.Group, err = groupOf(d.Metadata)
	return info, err
}

func (d *document) check() error {
	switch {
	case !slices.Contains(blockTypes, d.VolumeType):
		return invalid("volume-type", d.VolumeType, "block or directvol: only disks with a file system are supported")
	case !filepath.IsAbs(d.Device) || strings.ContainsRune(d.Device, 0):
		return invalid("device", d.Device, "the absolute path of a block device or a file")
	case !fstypePattern.MatchString(d.Fstype):
		return invalid("fstype", d.Fstype, "the name of a file system, as ext4 or xfs")
	case d.Metadata[keyEncryption] != "":
		return fmt.Errorf("metadata %s: encrypted volumes are not supported yet: %w", keyEncryption, errdefs.ErrInvalidArgument)
	case isTrue(d.Metadata[keyCreate]):
		return fmt.Errorf("metadata %s: the device must have its file system already: %w", keyCreate, errdefs.ErrInvalidArgument)
	case len(d.Confidential) > 0 && string(d.Confidential) != "null":
		return fmt.Errorf("confidential-storage: encrypted volumes are not supported yet: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

func isTrue(s string) bool {
	yes, err := strconv.ParseBool(s)
	return err == nil && yes
}

// setOptions takes options, of which one item may hold several, separated by
// commas. The last of ro and rw counts, as with mount(8).
func (i *Info) setOptions(list []string) error {
	text := strings.Join(list, ",")
	if len(text) > maxOptions || strings.ContainsRune(text, 0) {
		return fmt.Errorf("options have %d bytes, want at most %d without a zero byte: %w", len(text), maxOptions, errdefs.ErrInvalidArgument)
	}
	for option := range strings.SplitSeq(text, ",") {
		switch option {
		case "":
		case "ro", "rw":
			i.ReadOnly = option == "ro"
		default:
			i.Options = append(i.Options, option)
		}
	}
	return nil
}

func groupOf(metadata map[string]string) (*Group, error) {
	value := metadata[keyGroup]
	if value == "" {
		return nil, nil //nolint:nilnil // no group is an answer
	}
	// Kubernetes' fsGroup is at most 2147483647.
	gid, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return nil, invalid("metadata "+keyGroup, value, "a group id")
	}
	g := &Group{GID: uint32(gid)}
	switch policy := metadata[keyGroupPolicy]; policy {
	case "", "Always":
	case "OnRootMismatch":
		g.OnRootMismatch = true
	default:
		return nil, invalid("metadata "+keyGroupPolicy, policy, "Always or OnRootMismatch")
	}
	return g, nil
}

func invalid(key, value, want string) error {
	return fmt.Errorf("%s is %q, want %s: %w", key, value, want, errdefs.ErrInvalidArgument)
}
