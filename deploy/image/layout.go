package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "crypto/sha256" // registers the hash for go-digest
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// containerdName is the annotation from which containerd takes a manifest's full
// name on import (containerd, core/images/annotations.go); the specification's
// own annotation is only the tag.
const containerdName = "io.containerd.image.name"

// file is a file of an archive.
type file struct {
	name string
	// from is the source of its data, below the checkout.
	from string
	mode fs.FileMode
	data []byte
}

// makeLayout makes the files of an image layout (image-spec 1.1, image-layout.md).
func makeLayout(files []file, name, version string) ([]file, error) {
	layer, err := tarOf(files)
	if err != nil {
		return nil, err
	}
	packed, err := compress(layer)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(v1.Image{
		Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Config: v1.ImageConfig{
			Entrypoint: []string{"/opt/kata/bin/kata-runtime"},
			Cmd:        []string{"install", "--host-root", "/host"},
			Labels: map[string]string{
				v1.AnnotationTitle: "Katabox's installer", v1.AnnotationVersion: version, v1.AnnotationLicenses: "Apache-2.0",
			},
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the image's configuration: %w", err)
	}
	manifest, err := json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: describe(v1.MediaTypeImageConfig, config),
		Layers: []v1.Descriptor{describe(v1.MediaTypeImageLayerGzip, packed)},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the image's manifest: %w", err)
	}
	index, err := indexOf(manifest, name, version)
	if err != nil {
		return nil, err
	}
	return []file{
		blob(config), blob(manifest), blob(packed),
		{name: v1.ImageIndexFile, mode: 0o644, data: index},
		{name: v1.ImageLayoutFile, mode: 0o644, data: []byte(`{"imageLayoutVersion":"` + v1.ImageLayoutVersion + `"}`)},
	}, nil
}

func indexOf(manifest []byte, name, version string) ([]byte, error) {
	entry := describe(v1.MediaTypeImageManifest, manifest)
	entry.Platform = &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	entry.Annotations = map[string]string{containerdName: name + ":" + version, v1.AnnotationRefName: version}
	data, err := json.Marshal(v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{entry},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the image index: %w", err)
	}
	return data, nil
}

func describe(mediaType string, data []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

func blob(data []byte) file {
	return file{name: "blobs/sha256/" + digest.FromBytes(data).Encoded(), mode: 0o644, data: data}
}

func compress(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress the layer: %w", err)
	}
	return packed.Bytes(), nil
}

// tarOf packs files, each preceded by the directories above it, owned by root and
// with time 0.
func tarOf(files []file) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	made := map[string]bool{}
	for _, f := range files {
		for _, dir := range parents(f.name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := w.WriteHeader(header(dir+"/", tar.TypeDir, 0o755, 0)); err != nil {
				return nil, fmt.Errorf("pack %s: %w", dir, err)
			}
		}
		if err := w.WriteHeader(header(f.name, tar.TypeReg, f.mode, len(f.data))); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end archive: %w", err)
	}
	return archive.Bytes(), nil
}

func header(name string, kind byte, mode fs.FileMode, size int) *tar.Header {
	return &tar.Header{
		Name: name, Typeflag: kind, Mode: int64(mode), Size: int64(size), ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
	}
}

// parents returns the directories above a path, the outermost first.
func parents(name string) []string {
	var dirs []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}
