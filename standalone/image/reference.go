package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// Kind is a kind of source for images.
type Kind string

// The kinds, by the prefix that names each.
const (
	Registry      Kind = "docker"         // docker://busybox:1.36
	Layout        Kind = "oci"            // oci:PATH[:TAG], a directory
	LayoutArchive Kind = "oci-archive"    // oci-archive:PATH[:TAG], a tar of one
	DockerArchive Kind = "docker-archive" // docker-archive:PATH[:NAME], what "docker save" writes
	Rootfs        Kind = "rootfs"         // rootfs:PATH, a directory
)

// Reference names an image.
type Reference struct {
	Kind Kind
	// Path is absolute; Registry has none.
	Path string
	// Tag chooses among several images in one place, or is the name in a
	// registry.
	Tag string
}

// String returns the full reference. It names the image in the store.
func (r Reference) String() string {
	switch {
	case r.Kind == Registry:
		return r.Tag
	case r.Tag != "":
		return string(r.Kind) + ":" + r.Path + ":" + r.Tag
	}
	return string(r.Kind) + ":" + r.Path
}

// Parse parses a user's reference. Without a prefix it is a path if it begins
// with "/" or "." or exists, and the file there determines the kind; otherwise it
// is a name in a registry.
func Parse(text string) (Reference, error) {
	if text == "" {
		return Reference{}, fmt.Errorf("no image named: %w", errdefs.ErrInvalidArgument)
	}
	for _, kind := range []Kind{Registry, LayoutArchive, Layout, DockerArchive, Rootfs} {
		if rest, ok := strings.CutPrefix(text, string(kind)+":"); ok && (kind != Registry || strings.HasPrefix(rest, "//")) {
			return parseAs(kind, rest)
		}
	}
	path, tag, found := splitPath(text)
	if !found && !strings.HasPrefix(text, "/") && !strings.HasPrefix(text, ".") {
		return Reference{Kind: Registry, Tag: text}, nil
	}
	kind, err := kindOf(path)
	if err != nil {
		return Reference{}, fmt.Errorf("image %s: %w", text, err)
	}
	if kind == Rootfs && tag != "" {
		return Reference{}, fmt.Errorf("image %s: a root file system has no tag: %w", text, errdefs.ErrInvalidArgument)
	}
	return absolute(Reference{Kind: kind, Path: path, Tag: tag})
}

func parseAs(kind Kind, rest string) (Reference, error) {
	switch kind {
	case Registry:
		return Reference{Kind: kind, Tag: strings.TrimPrefix(rest, "//")}, nil
	case Rootfs:
		return absolute(Reference{Kind: kind, Path: rest})
	}
	path, tag, _ := splitPath(rest)
	return absolute(Reference{Kind: kind, Path: path, Tag: tag})
}

// splitPath splits a tag off the end of a path. A path that exists as it is has
// no tag.
func splitPath(text string) (path, tag string, found bool) {
	if _, err := os.Stat(text); err == nil {
		return text, "", true
	}
	// A tag of a docker-archive may be a name with a colon.
	for i := 0; i < len(text); i++ {
		if text[i] != ':' {
			continue
		}
		if _, err := os.Stat(text[:i]); err == nil && i > 0 {
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

func absolute(r Reference) (Reference, error) {
	if r.Path == "" {
		return r, fmt.Errorf("image %s: no path: %w", r.Kind, errdefs.ErrInvalidArgument)
	}
	path, err := filepath.Abs(r.Path)
	if err != nil {
		return r, fmt.Errorf("image %s: %w", r.Path, err)
	}
	r.Path = path
	return r, nil
}

// kindOf determines the kind of image at a path.
func kindOf(path string) (Kind, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		if _, err := os.Stat(filepath.Join(path, layoutFile)); err == nil {
			return Layout, nil
		}
		return Rootfs, nil
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("neither a directory nor a regular file: %w", errdefs.ErrInvalidArgument)
	}
	return archiveKind(path)
}
