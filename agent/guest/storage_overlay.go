package guest

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// mountOverlay mounts an overlay of other storages' directories. Missing upper
// and work directories are made; without these options the overlay is
// read-only.
func (m *Mounter) mountOverlay(_ context.Context, s *api.Storage) error {
	if err := m.Modules.Demand("overlay"); err != nil {
		return err
	}
	flags, data := parseMountOptions(s.GetOptions())
	dirs, err := overlayDirs(data)
	if err != nil {
		return err
	}
	for _, dir := range dirs.all() {
		if err := m.checkPath(dir); err != nil {
			return fmt.Errorf("overlay directory: %w", err)
		}
	}
	if dirs.upper == "" {
		flags |= unix.MS_RDONLY
	}
	for _, dir := range dirs.made() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make overlay directory: %w", err)
		}
	}
	if err := checkData(data); err != nil {
		return err
	}
	return m.mount(request{"overlay", s.GetTarget(), "overlay", flags, data})
}

// overlay is the directories of an overlay.
type overlay struct {
	lower       []string
	upper, work string
}

// made returns the directories that may be missing.
func (o overlay) made() []string {
	if o.upper == "" {
		return nil
	}
	return []string{o.upper, o.work}
}

func (o overlay) all() []string { return append(o.made(), o.lower...) }

// overlayDirs reads an overlay's directories from its options (kernel,
// Documentation/filesystems/overlayfs.rst). Names with a backslash, which
// escapes separators, are refused.
func overlayDirs(data string) (overlay, error) {
	var o overlay
	for option := range strings.SplitSeq(data, ",") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "lowerdir":
			o.lower = strings.Split(value, ":")
		case "upperdir":
			o.upper = value
		case "workdir":
			o.work = value
		case "lowerdir+", "datadir+":
			return o, fmt.Errorf("overlay option %s: want lowerdir: %w", key, errdefs.ErrInvalidArgument)
		}
	}
	switch {
	case strings.Contains(data, `\`):
		return o, fmt.Errorf("overlay options %.200q: no backslash is understood: %w", data, errdefs.ErrInvalidArgument)
	case len(o.lower) == 0:
		return o, fmt.Errorf("overlay options %.200q have no lowerdir: %w", data, errdefs.ErrInvalidArgument)
	case (o.upper == "") != (o.work == ""):
		return o, fmt.Errorf("overlay options %.200q have one of upperdir and workdir, want both or none: %w", data, errdefs.ErrInvalidArgument)
	}
	return o, nil
}
