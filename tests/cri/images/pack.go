package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// blob is what the registry returns for a digest.
type blob struct {
	mediaType string
	data      []byte
}

// Store holds images as a registry serves them. It does not change once built.
type Store struct {
	blobs map[digest.Digest]blob
	// manifests has the digest of each image's manifest by name and tag.
	manifests map[string]digest.Digest
	// repositories are the names without tags.
	repositories map[string]bool
}

func newStore() *Store {
	return &Store{blobs: map[digest.Digest]blob{}, manifests: map[string]digest.Digest{}, repositories: map[string]bool{}}
}

// add packs an image. The same definition gives the same bytes.
func (s *Store) add(def definition) error {
	manifest := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest}
	config := v1.Image{
		Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Config:   def.config,
		RootFS:   v1.RootFS{Type: "layers"},
	}
	// The name makes two images with the same content differ.
	config.Author = def.names[0]
	for _, l := range def.layers {
		archive, err := tarOf(l)
		if err != nil {
			return fmt.Errorf("pack image %s: %w", def.names[0], err)
		}
		desc := s.put(v1.MediaTypeImageLayer, archive)
		manifest.Layers = append(manifest.Layers, desc)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, desc.Digest)
	}
	var err error
	if manifest.Config, err = s.putJSON(v1.MediaTypeImageConfig, config); err != nil {
		return err
	}
	desc, err := s.putJSON(v1.MediaTypeImageManifest, manifest)
	if err != nil {
		return err
	}
	for _, name := range def.names {
		s.manifests[name] = desc.Digest
		s.repositories[repository(name)] = true
	}
	return nil
}

func (s *Store) put(mediaType string, data []byte) v1.Descriptor {
	d := digest.FromBytes(data)
	s.blobs[d] = blob{mediaType, data}
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (s *Store) putJSON(mediaType string, value any) (v1.Descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("encode %s: %w", mediaType, err)
	}
	return s.put(mediaType, data), nil
}

// tarOf packs a layer in its order, with no time and no owner.
func tarOf(l layer) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range l {
		h := tar.Header{Name: f.path, Mode: f.mode, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		switch {
		case f.dir:
			h.Typeflag, h.Name = tar.TypeDir, f.path+"/"
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeLink, f.link
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.data))
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.path, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end archive: %w", err)
	}
	return buf.Bytes(), nil
}
