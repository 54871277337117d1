package main

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	specs "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/katabox/katabox/deploy/image/pack"
)

// makeImage returns the image with files.
func makeImage(files []pack.File, version string) (v1.Image, error) {
	plain, err := pack.Layer(files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(plain.Uncompressed, tarball.WithCompressedCaching,
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("compress the layer: %w", err)
	}
	return pack.Image(v1.ConfigFile{Config: v1.Config{
		Entrypoint: []string{"/opt/kata/bin/kata-runtime"},
		Cmd:        []string{"install", "--host-root", "/host"},
		Labels: map[string]string{
			specs.AnnotationTitle: "Katabox's installer", specs.AnnotationVersion: version, specs.AnnotationLicenses: "Apache-2.0",
		},
	}}, layer)
}

// writeLayout writes an image layout into dir, in place of an earlier one, and all of
// it into the file dir.tar.
func writeLayout(dir string, img v1.Image, name, version string) error {
	if err := os.RemoveAll(filepath.Join(dir, specs.ImageBlobsDir)); err != nil {
		return err
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
		Platform:    &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Annotations: map[string]string{pack.NameAnnotation: name + ":" + version, specs.AnnotationRefName: version},
	}})
	if _, err := layout.Write(dir, index); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	return pack.Archive(dir+".tar", dir)
}
