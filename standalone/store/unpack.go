package store

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sys/unix"
)

// maxLayers is how many layers an image may have: as many as fit into the options
// of one overlayfs mount, a page.
const maxLayers = 120

// chainBytes is how many bytes of a chain's digest name its directory, in base64: few
// enough that the options of an overlay of maxLayers fit, and too many for two layers
// to be made with one name.
const chainBytes = 18

// layerName returns the name of a chain's directory. The digest is valid.
func layerName(chain digest.Digest) string {
	var sum [chainBytes]byte
	_, _ = hex.Decode(sum[:], []byte(chain.Encoded()[:hex.EncodedLen(chainBytes)]))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Progress reports the progress of an Add. Its calls come from one goroutine.
type Progress interface {
	// Layer is called before layer n of all, with its size; 0 is unknown.
	Layer(n, all int, size int64)
	// Moved is called after n further bytes of the layer were read.
	Moved(n int)
}

// Add unpacks the missing layers of an image and records the image by its name.
// The caller has called Use.
func (s *Store) Add(ctx context.Context, src Source, progress Progress) (Image, error) {
	if len(src.Layers) == 0 || len(src.Layers) > maxLayers {
		return Image{}, fmt.Errorf("image %s has %d layers, want 1 to %d: %w", src.Name, len(src.Layers), maxLayers, errdefs.ErrInvalidArgument)
	}
	img := Image{Name: src.Name, Config: src.Config}
	ids := make([]digest.Digest, 0, len(src.Layers))
	for _, layer := range src.Layers {
		if err := layer.DiffID.Validate(); err != nil {
			return Image{}, fmt.Errorf("image %s: sum of a layer: %w", src.Name, err)
		}
		ids = append(ids, layer.DiffID)
		img.Layers = append(img.Layers, layerName(identity.ChainID(ids)))
	}
	overlay, err := s.overlay()
	if err != nil {
		return Image{}, fmt.Errorf("unpack image %s: %w", src.Name, err)
	}
	unpack := s.unpackEach
	if !overlay {
		unpack = s.unpackFlat
	}
	if err := unpack(ctx, src, &img, progress); err != nil {
		return Image{}, fmt.Errorf("unpack image %s: %w", src.Name, err)
	}
	if src.Name == "" {
		return img, nil
	}
	return img, WriteJSON(s.imagePath(src.Name), &img)
}

// unpackEach unpacks each layer into a separate directory, with overlayfs'
// whiteouts.
func (s *Store) unpackEach(ctx context.Context, src Source, img *Image, progress Progress) error {
	var parents []string // the nearest first, as apply expects them
	for i, name := range img.Layers {
		if !s.has(name) {
			progress.Layer(i+1, len(img.Layers), src.Layers[i].Size)
			err := s.makeLayer(name, func(dir string) error {
				return s.apply(ctx, dir, src.Layers[i], progress,
					archive.WithConvertWhiteout(overlayWhiteout), archive.WithParents(parents))
			})
			if err != nil {
				return fmt.Errorf("layer %d of %d: %w", i+1, len(img.Layers), err)
			}
		}
		parents = append([]string{"/" + name}, parents...)
	}
	return nil
}

// unpackFlat unpacks all layers into one directory.
func (s *Store) unpackFlat(ctx context.Context, src Source, img *Image, progress Progress) error {
	name := "flat-" + img.Layers[len(img.Layers)-1]
	img.Layers = []string{name}
	if s.has(name) {
		return nil
	}
	return s.makeLayer(name, func(dir string) error {
		for i, layer := range src.Layers {
			progress.Layer(i+1, len(src.Layers), layer.Size)
			if err := s.apply(ctx, dir, layer, progress); err != nil {
				return fmt.Errorf("layer %d of %d: %w", i+1, len(src.Layers), err)
			}
		}
		return nil
	})
}

func (s *Store) layerPath(name string) string { return filepath.Join(s.root, layersDir, name) }

func (s *Store) has(name string) bool {
	_, err := os.Stat(s.layerPath(name))
	return err == nil
}

// makeLayer fills a new directory and renames it to the layer's name when all of
// it is on disk. Another process may have been faster; its layer is the same.
func (s *Store) makeLayer(name string, fill func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(filepath.Join(s.root, layersDir), newPrefix)
	if err != nil {
		return fmt.Errorf("make layer: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// For a layer that does not set the mode of its root.
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("make layer: %w", err)
	}
	if err := fill(dir); err != nil {
		return err
	}
	if err := syncFilesystem(dir); err != nil {
		return err
	}
	if err := os.Rename(dir, s.layerPath(name)); err != nil && !s.has(name) {
		return fmt.Errorf("make layer: %w", err)
	}
	return syncFilesystem(filepath.Join(s.root, layersDir))
}

// syncFilesystem writes out the file system that contains a directory.
func syncFilesystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write out layer: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("write out layer: %w", err)
	}
	return nil
}

// apply unpacks one layer over the content of dir, a directory of layers, and
// compares the tar's digest. Even if a layer exploits the archive package, it
// reaches no files but the store's layers: the thread sees no others.
func (s *Store) apply(ctx context.Context, dir string, layer Layer, progress Progress, opts ...archive.ApplyOpt) error {
	tar, err := layer.Open(progress.Moved)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer tar.Close()
	verifier := layer.DiffID.Verifier()
	all := io.TeeReader(tar, verifier)
	err = inRoot(filepath.Join(s.root, layersDir), func() error {
		_, err := archive.Apply(ctx, "/"+filepath.Base(dir), all, append(opts, archive.WithFilter(acceptable))...)
		return err
	})
	if err != nil {
		return err
	}
	// Data after the end of the archive is part of the digest.
	if _, err := io.Copy(io.Discard, all); err != nil {
		return fmt.Errorf("read to the end: %w", err)
	}
	if !verifier.Verified() {
		return fmt.Errorf("its content is not that of %s: %w", layer.DiffID, errdefs.ErrFailedPrecondition)
	}
	return nil
}
