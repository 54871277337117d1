package store

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Source is an image to be added to the store.
type Source struct {
	// Name is the name by which the image is found later; with "" it cannot be
	// found.
	Name   string
	Config v1.ImageConfig
	// Layers are the image's, the lowest first.
	Layers []Layer
}

// Layer is one layer of a Source.
type Layer struct {
	// DiffID is the sum of the layer's tar.
	DiffID digest.Digest
	// Size is the total that Open's moved counts, in bytes; 0 is unknown.
	Size int64
	// Open returns the layer's tar. On each read it calls moved with the number
	// of bytes that were read of the source.
	Open func(moved func(int)) (io.ReadCloser, error)
}

// Image is an image in the store, or a directory outside of it.
type Image struct {
	Name   string         `json:"name"`
	Config v1.ImageConfig `json:"config"`
	// Layers are the names of the layers' directories, the lowest first.
	Layers []string `json:"layers,omitempty"`
	// Dir is a directory that is the only layer, in place of Layers. The store
	// never changes it.
	Dir string `json:"dir,omitempty"`
}

// imageFile is the file in a container's directory that names its image.
const imageFile = "image.json"

// maxImageFile bounds how much of an image's description is read.
const maxImageFile = 4 << 20

// Find returns the image with that name. It fails with errdefs.ErrNotFound if the
// image does not exist or lacks a layer.
func (s *Store) Find(name string) (Image, error) {
	img, err := readImage(s.imagePath(name))
	if errors.Is(err, os.ErrNotExist) {
		return Image{}, fmt.Errorf("image %s: %w", name, errdefs.ErrNotFound)
	}
	if err != nil {
		return Image{}, err
	}
	for _, layer := range img.Layers {
		if _, err := os.Stat(s.layerPath(layer)); err != nil {
			return Image{}, fmt.Errorf("image %s: %w: %w", name, err, errdefs.ErrNotFound)
		}
	}
	return img, nil
}

func (s *Store) imagePath(name string) string {
	return filepath.Join(s.root, imagesDir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(name))))
}

func readImage(path string) (Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return Image{}, fmt.Errorf("read image: %w", err)
	}
	defer f.Close()
	var img Image
	if err := json.NewDecoder(io.LimitReader(f, maxImageFile)).Decode(&img); err != nil {
		return Image{}, fmt.Errorf("read image %s: %w", path, err)
	}
	return img, nil
}
