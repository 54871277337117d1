package image

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// platform is the guest's platform.
var platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// imageName is the annotation with an image's full name in a layout that
// containerd writes.
const imageName = "io.containerd.image.name"

// maxIndexes bounds how deep indexes may be nested.
const maxIndexes = 4

// choose returns the image with that tag from a layout's index; without a tag
// there must be only one for this platform.
func choose(index v1.ImageIndex, tag string) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	var fitting []v1.Descriptor
	var tags []string
	for _, d := range manifest.Manifests {
		tags = append(tags, cmp.Or(d.Annotations[oci.AnnotationRefName], d.Annotations[imageName]))
		if d.MediaType.IsIndex() || d.MediaType.IsImage() && fits(d.Platform) {
			if tag == "" || tagged(d, tag) {
				fitting = append(fitting, d)
			}
		}
	}
	fitting = slices.CompactFunc(fitting, func(a, b v1.Descriptor) bool { return a.Digest == b.Digest })
	switch {
	case len(fitting) == 0:
		return nil, fmt.Errorf("no image for %s with the tag %q among %d (%s): %w", platform, tag, len(tags), strings.Join(tags, ", "), errdefs.ErrNotFound)
	case len(fitting) > 1 && tag == "":
		return nil, fmt.Errorf("%d images (%s): append :TAG to choose one: %w", len(fitting), strings.Join(tags, ", "), errdefs.ErrInvalidArgument)
	}
	return resolve(index, fitting[0], maxIndexes)
}

// tagged reports whether a descriptor has the tag, in the form of OCI's layouts
// or of containerd.
func tagged(d v1.Descriptor, tag string) bool {
	return d.Annotations[oci.AnnotationRefName] == tag || d.Annotations[imageName] == tag
}

// resolve descends from an index to the image of this platform.
func resolve(index v1.ImageIndex, d v1.Descriptor, depth int) (v1.Image, error) {
	if !d.MediaType.IsIndex() {
		return checkedImage(index, d)
	}
	if depth == 0 {
		return nil, fmt.Errorf("more than %d indexes within each other: %w", maxIndexes, errdefs.ErrInvalidArgument)
	}
	inner, err := checkedIndex(index, d)
	if err != nil {
		return nil, err
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsIndex() || d.MediaType.IsImage() && fits(d.Platform) {
			return resolve(inner, d, depth-1)
		}
	}
	return nil, fmt.Errorf("no image for %s: %w", platform, errdefs.ErrNotFound)
}

// checkedImage returns an image from an index after comparing its manifest with
// the digest in the index: a layout's library does not.
func checkedImage(index v1.ImageIndex, d v1.Descriptor) (v1.Image, error) {
	img, err := index.Image(d.Digest)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	raw, err := img.RawManifest()
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return img, checkSum("manifest", raw, d.Digest)
}

// checkedIndex is checkedImage for an index within another.
func checkedIndex(index v1.ImageIndex, d v1.Descriptor) (v1.ImageIndex, error) {
	inner, err := index.ImageIndex(d.Digest)
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	raw, err := inner.RawManifest()
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	return inner, checkSum("index", raw, d.Digest)
}

// fits reports whether an image may be of this platform. A descriptor without a
// platform is checked later.
func fits(p *v1.Platform) bool {
	return p == nil || p.OS == platform.OS && p.Architecture == platform.Architecture
}

func checkPlatform(p oci.Platform) error {
	if p.OS != "" && p.OS != platform.OS || p.Architecture != "" && p.Architecture != platform.Architecture {
		return fmt.Errorf("it is for %s/%s, want %s: %w", p.OS, p.Architecture, platform, errdefs.ErrFailedPrecondition)
	}
	return nil
}
