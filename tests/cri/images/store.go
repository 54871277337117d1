package images

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/katabox/katabox/deploy/image/pack"
)

// Store has images by name and tag. Serve makes them a registry's.
type Store struct{ images map[string]v1.Image }

func newStore() *Store { return &Store{map[string]v1.Image{}} }

// add packs an image. The same definition gives the same bytes.
func (s *Store) add(def definition) error {
	var layers []v1.Layer
	for _, files := range def.layers {
		l, err := pack.Layer(files)
		if err != nil {
			return fmt.Errorf("pack image %s: %w", def.names[0], err)
		}
		layers = append(layers, l)
	}
	// The name makes two images with the same content differ.
	img, err := pack.Image(v1.ConfigFile{Author: def.names[0], Config: def.config}, layers...)
	if err != nil {
		return fmt.Errorf("pack image %s: %w", def.names[0], err)
	}
	for _, name := range def.names {
		s.images[name] = img
	}
	return nil
}
