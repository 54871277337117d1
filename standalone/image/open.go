package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/opencontainers/go-digest"
	oci "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/katabox/katabox/standalone/store"
)

// Opened is an image whose layers can be read until Close.
type Opened struct {
	store.Source
	scratch string
}

// Close removes extracted files.
func (o *Opened) Close() error {
	if o.scratch == "" {
		return nil
	}
	return os.RemoveAll(o.scratch)
}

// Open finds the image. For a registry it uses the credentials of docker's
// configuration ($DOCKER_CONFIG, ~/.docker/config.json) or of Podman's
// ($REGISTRY_AUTH_FILE). A directory with a root file system has no layers and is
// refused. A layout's tar is extracted below the directory scratch, until Close.
func Open(ctx context.Context, r Reference, scratch string) (_ *Opened, err error) {
	o := &Opened{}
	o.Name = r.String()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("image %s: %w", r, err), o.Close())
		}
	}()
	img, err := o.find(ctx, r, scratch)
	if err != nil {
		return nil, err
	}
	return o, o.describe(img, r.Kind)
}

// find returns the image.
func (o *Opened) find(ctx context.Context, r Reference, scratch string) (v1.Image, error) {
	switch r.Kind {
	case Registry:
		return fromRegistry(ctx, r.Tag)
	case Layout:
		return fromLayout(r.Path, r.Tag)
	case LayoutArchive:
		var err error
		if o.scratch, err = os.MkdirTemp(scratch, "layout-"); err != nil {
			return nil, err
		}
		if err := extractLayout(ctx, r.Path, o.scratch); err != nil {
			return nil, err
		}
		return fromLayout(o.scratch, r.Tag)
	case DockerArchive:
		return fromDockerArchive(r.Path, r.Tag)
	}
	return nil, fmt.Errorf("kind %s has no layers: %w", r.Kind, errdefs.ErrInvalidArgument)
}

func fromRegistry(ctx context.Context, text string) (v1.Image, error) {
	ref, err := name.ParseReference(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(platform))
	if err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	return img, nil
}

func fromDockerArchive(path, tag string) (v1.Image, error) {
	opener := func() (io.ReadCloser, error) { return openArchive(path) }
	var wanted *name.Tag
	if tag != "" {
		t, err := name.NewTag(tag)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
		wanted = &t
	}
	img, err := tarball.Image(opener, wanted)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	return img, nil
}

func fromLayout(path, tag string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("read layout: %w", err)
	}
	return choose(index, tag)
}

// maxDocument bounds the size of an image's manifest and of its configuration.
const maxDocument = 4 << 20

// checkSum compares data with the digest by which it was requested.
func checkSum(what string, raw []byte, want v1.Hash) error {
	if len(raw) > maxDocument || digest.FromBytes(raw).String() != want.String() {
		return fmt.Errorf("%s of %d bytes is not that of %s: %w", what, len(raw), want, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// rawConfig reads an image's configuration, and compares it with the manifest. Docker's
// archive names no digest: for its manifest the library would compress the layers.
func rawConfig(img v1.Image, kind Kind) ([]byte, error) {
	if kind == DockerArchive {
		raw, err := img.RawConfigFile()
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		return raw, checkSize(int64(len(raw)))
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if err := checkSize(manifest.Config.Size); err != nil { // the library reads all of it into memory
		return nil, err
	}
	raw, err := img.RawConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return raw, checkSum("configuration", raw, manifest.Config.Digest)
}

// checkSize refuses a configuration that is too large.
func checkSize(size int64) error {
	if size > maxDocument {
		return fmt.Errorf("configuration of %d bytes: want %d at most: %w", size, maxDocument, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// describe fills in the fields that the store needs.
func (o *Opened) describe(img v1.Image, kind Kind) error {
	raw, err := rawConfig(img, kind)
	if err != nil {
		return err
	}
	var config oci.Image
	if err := json.Unmarshal(raw, &config); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if err := checkPlatform(config.Platform); err != nil {
		return err
	}
	o.Config = config.Config
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("read layers: %w", err)
	}
	if len(layers) != len(config.RootFS.DiffIDs) {
		return fmt.Errorf("%d layers, but the configuration has %d: %w", len(layers), len(config.RootFS.DiffIDs), errdefs.ErrFailedPrecondition)
	}
	for i, l := range layers {
		// The library would compress the layers of docker's archive to find out their sizes.
		layer, err := layerOf(l, config.RootFS.DiffIDs[i], kind != DockerArchive)
		if err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
		o.Layers = append(o.Layers, layer)
	}
	return nil
}
