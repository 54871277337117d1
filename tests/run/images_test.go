package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/katabox/katabox/deploy/image/pack"
	"github.com/katabox/katabox/tests/image"
)

// images are the references to one image, busybox, in each kind of place.
type images struct {
	layout, archive, docker, registry, rootfs string
	server                                    *httptest.Server
	away                                      atomic.Bool // the registry answers nothing
}

func (i *images) make(ctx context.Context) (err error) {
	i.archive, err = image.Build(ctx, filepath.Join(bed.layout.Build(), "images"))
	if err != nil {
		return err
	}
	i.archive += ":" + image.Busybox
	dir := filepath.Join(bed.dir, "layout")
	if err := extract(ctx, strings.TrimSuffix(i.archive, ":"+image.Busybox), dir); err != nil {
		return err
	}
	i.layout = dir + ":" + image.Busybox
	img, err := busyboxOf(dir)
	if err != nil {
		return err
	}
	return errors.Join(i.writeDocker(img), i.serve(img), i.writeRootfs(ctx, img))
}

func extract(ctx context.Context, archive, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("extract %s: %w: %s", archive, err, out)
	}
	return nil
}

func busyboxOf(dir string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifest.Manifests {
		if d.Annotations[pack.NameAnnotation] == image.Busybox {
			return index.Image(d.Digest)
		}
	}
	return nil, fmt.Errorf("no %s in %s", image.Busybox, dir)
}

func (i *images) writeDocker(img v1.Image) error {
	i.docker = filepath.Join(bed.dir, "docker.tar")
	tag, err := name.NewTag("busybox:test")
	if err != nil {
		return err
	}
	return tarball.WriteToFile(i.docker, tag, img)
}

func (i *images) serve(img v1.Image) error {
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		images.ServeHTTP(w, r)
	}))
	i.registry = strings.TrimPrefix(i.server.URL, "http://") + "/busybox:test"
	ref, err := name.ParseReference(i.registry)
	if err != nil {
		return err
	}
	return remote.Write(ref, img)
}

func (i *images) writeRootfs(ctx context.Context, img v1.Image) error {
	i.rootfs = filepath.Join(bed.dir, "rootfs")
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for n, l := range layers {
		in, err := l.Uncompressed()
		if err != nil {
			return err
		}
		defer in.Close() //nolint:revive // the layers are few
		if n == 0 {
			if err := os.Mkdir(i.rootfs, 0o755); err != nil {
				return err
			}
		}
		cmd := exec.CommandContext(ctx, "tar", "-x", "-C", i.rootfs)
		cmd.Stdin = in
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("extract layer: %w: %s", err, out)
		}
	}
	return nil
}

func (i *images) close() error {
	if i.server != nil {
		i.server.Close()
	}
	return nil
}
