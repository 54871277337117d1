package store

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/errdefs"
)

// Names of whiteouts in a layer's tar (OCI image specification, layer.md).
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
)

// overlayWhiteout converts a layer's whiteouts to overlayfs'. A layer that
// removes what it has just made, or twice, is odd but harmless: the entry is
// replaced.
func overlayWhiteout(hdr *tar.Header, path string) (bool, error) {
	base := filepath.Base(path)
	if base != opaqueName && strings.HasPrefix(base, whiteoutPrefix) {
		target := filepath.Join(filepath.Dir(path), base[len(whiteoutPrefix):])
		if err := os.RemoveAll(target); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	return archive.OverlayConvertWhiteout(hdr, path)
}

// acceptable refuses entries that mean something else to overlayfs than in an
// image: the character device 0:0 is a whiteout there.
func acceptable(hdr *tar.Header) (bool, error) {
	if hdr.Typeflag == tar.TypeChar && hdr.Devmajor == 0 && hdr.Devminor == 0 {
		return false, fmt.Errorf("entry %q is the character device 0:0, which is not a device: %w", hdr.Name, errdefs.ErrInvalidArgument)
	}
	return true, nil
}
