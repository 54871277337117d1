package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageNameAnnotation gives a manifest its full reference when containerd
// imports it (containerd, core/images/annotations.go).
const imageNameAnnotation = "io.containerd.image.name"

// writeLayout packs images as one OCI image layout (image-spec 1.1,
// image-layout.md) into the tar file at path. The file appears complete or not
// at all.
func writeLayout(path string, images []image) error {
	var entries []file
	var docker []dockerManifest
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, img := range images {
		manifest, blobs, err := pack(img)
		if err != nil {
			return fmt.Errorf("pack image %s: %w", img.name, err)
		}
		docker = append(docker, dockerManifest{Config: blobs[1].path, RepoTags: []string{img.name}, Layers: []string{blobs[0].path}})
		index.Manifests = append(index.Manifests, manifest)
		entries = append(entries, blobs...)
	}
	head, err := json.Marshal(index)
	if err != nil {
		return fmt.Errorf("encode image index: %w", err)
	}
	list, err := json.Marshal(docker)
	if err != nil {
		return fmt.Errorf("encode Docker's manifest: %w", err)
	}
	layout := file{path: v1.ImageLayoutFile, mode: 0o644, data: []byte(`{"imageLayoutVersion":"` + v1.ImageLayoutVersion + `"}`)}
	entries = append(entries, layout, file{path: v1.ImageIndexFile, mode: 0o644, data: head},
		file{path: "manifest.json", mode: 0o644, data: list})
	archive, err := tarOf(entries)
	if err != nil {
		return err
	}
	return writeWhole(path, archive)
}

// writeWhole writes a file atomically. Several programs may write the same file
// concurrently, as parallel suites do.
func writeWhole(path string, data []byte) (err error) {
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-")
	if err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part.Name())
		}
	}()
	_, err = part.Write(data)
	if err := errors.Join(err, part.Chmod(0o644), part.Close()); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return os.Rename(part.Name(), path)
}

// dockerManifest is an entry of manifest.json, with which "docker load" reads
// an archive (moby, image/tarexport). Its paths are those of the blobs.
type dockerManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// pack returns the image's manifest descriptor and its blobs: the layer, the
// configuration, the manifest.
func pack(img image) (v1.Descriptor, []file, error) {
	layer, err := tarOf(img.files)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	layerDesc := describe(v1.MediaTypeImageLayer, layer)
	config, err := json.Marshal(v1.Image{
		Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Config:   img.config,
		RootFS:   v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerDesc.Digest}},
	})
	if err != nil {
		return v1.Descriptor{}, nil, fmt.Errorf("encode config: %w", err)
	}
	manifest, err := json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    describe(v1.MediaTypeImageConfig, config),
		Layers:    []v1.Descriptor{layerDesc},
	})
	if err != nil {
		return v1.Descriptor{}, nil, fmt.Errorf("encode manifest: %w", err)
	}
	desc := describe(v1.MediaTypeImageManifest, manifest)
	desc.Annotations = map[string]string{imageNameAnnotation: img.name}
	return desc, []file{blob(layer), blob(config), blob(manifest)}, nil
}

func describe(mediaType string, data []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

func blob(data []byte) file {
	return file{path: "blobs/sha256/" + digest.FromBytes(data).Encoded(), mode: 0o644, data: data}
}

// tarOf packs files in their order, without times and owner names.
func tarOf(files []file) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := tar.Header{Name: f.path, Mode: f.mode, Uid: f.uid, Gid: f.gid, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
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
