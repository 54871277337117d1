package image

import (
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Open opens the only layer of an image of an archive of Build, a tar file that is
// not compressed. The caller closes it.
func Open(archive, image string) (io.ReadCloser, error) {
	tag, err := name.NewTag(image)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", archive, err)
	}
	img, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", image, archive, err)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", image, archive, err)
	}
	return layers[0].Uncompressed()
}
