package image

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/katabox/katabox/deploy/image/pack"
)

// writeLayout packs images as one OCI image layout into the tar file at path, with
// the manifest.json with which "docker load" reads it.
func writeLayout(path string, images []image) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), "layout-")
	if err != nil {
		return fmt.Errorf("make layout: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	index := v1.ImageIndex(empty.Index)
	var docker tarball.Manifest
	for _, i := range images {
		img, entry, err := i.pack()
		if err != nil {
			return fmt.Errorf("pack image %s: %w", i.name, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Annotations: map[string]string{pack.NameAnnotation: i.name},
		}})
		docker = append(docker, entry)
	}
	written, err := layout.Write(dir, index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	list, err := json.Marshal(docker)
	if err != nil {
		return fmt.Errorf("encode Docker's manifest: %w", err)
	}
	if err := written.WriteFile("manifest.json", list, 0o644); err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	return pack.Archive(path, dir)
}

// pack returns the image, and its entry of manifest.json (moby, image/tarexport),
// whose paths are those of the layout's blobs.
func (i image) pack() (v1.Image, tarball.Descriptor, error) {
	layer, err := pack.Layer(i.files)
	if err != nil {
		return nil, tarball.Descriptor{}, err
	}
	img, err := pack.Image(v1.ConfigFile{Config: i.config}, layer)
	if err != nil {
		return nil, tarball.Descriptor{}, err
	}
	m, err := img.Manifest()
	if err != nil {
		return nil, tarball.Descriptor{}, err
	}
	return img, tarball.Descriptor{Config: blobPath(m.Config), RepoTags: []string{i.name}, Layers: []string{blobPath(m.Layers[0])}}, nil
}

func blobPath(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }
