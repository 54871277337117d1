package client

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/katabox/katabox/deploy/image/pack"
	"github.com/katabox/katabox/tests/image"
)

// busyboxName is the suite's main image, below its registry's host.
const busyboxName = "containerd/busybox"

// catalog is what the suite pulls: names and tags below the registries' hosts,
// and how many layers there are above busybox's (integration/images of
// containerd's module, and names written in the tests).
var catalog = map[string]int{
	busyboxName + ":1.36":             0,
	"containerd/volume-copy-up:2.2":   3,
	"containerd/volume-ownership:2.1": 1,
	"pause:3.10.2":                    1,
	"pause:3.6":                       3,
	"e2e-test-images/busybox:1.29-2":  2,
}

// others are the other platforms for which each image has some content: the
// suite checks what is pulled for them.
var others = []v1.Platform{
	{OS: "linux", Architecture: "arm64", Variant: "v8"},
	{OS: "linux", Architecture: "arm", Variant: "v7"},
	{OS: "linux", Architecture: "ppc64le"},
	{OS: "linux", Architecture: "s390x"},
}

// files is the content of one layer: files by their names.
type files map[string]file

type file struct {
	mode int64
	data string
}

// common is what the suite expects in each image besides busybox.
var common = files{
	"etc/passwd": {0o644, "root:x:0:0:root:/root:/bin/sh\nsys:x:3:3:sys:/dev:/bin/false\n" +
		"www-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n"},
	"etc/group": {0o644, "root:x:0:\nsys:x:3:\nwww-data:x:33:\nnogroup:x:65534:\n"},
	"bin/bash":  {0o755, "#!/bin/sh\nexec sh \"$@\"\n"},
	// Owned by root, with the set-user-ID bit that the test of user namespaces
	// checks.
	"usr/bin/passwd": {0o4755, ""},
	// An init ignores a signal without a handler (pid_namespaces(7)); Debian's
	// nc has none.
	"usr/local/sbin/nc": {0o755, "#!/bin/sh\ntrap 'exit 143' TERM\n/usr/bin/nc \"$@\" &\nwait $!\n"},
}

// buildImages makes the images out of the busybox of the archive
// (image.Build) and returns a registry that has them, and the digest of the
// main one.
func buildImages(ctx context.Context, archive string) (handler http.Handler, digest string, err error) {
	base, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return image.Open(archive, image.Busybox) })
	if err != nil {
		return nil, "", err
	}
	handler = registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))
	server := httptest.NewServer(handler)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for path, layers := range catalog {
		index, err := newIndex(base, path, layers)
		if err != nil {
			return nil, "", fmt.Errorf("make image %s: %w", path, err)
		}
		tag, err := name.NewTag(host + "/" + path)
		if err == nil {
			err = remote.WriteIndex(tag, index, remote.WithContext(ctx))
		}
		if err != nil {
			return nil, "", fmt.Errorf("store image %s: %w", path, err)
		}
		if strings.HasPrefix(path, busyboxName+":") {
			d, err := index.Digest()
			if err != nil {
				return nil, "", fmt.Errorf("read digest of %s: %w", path, err)
			}
			digest = d.String()
		}
	}
	return handler, digest, nil
}

// newIndex is an image of this platform, with some layers above the base, and
// small ones of others. The path makes it differ from others with the same
// layers.
func newIndex(base v1.Layer, path string, layers int) (v1.ImageIndex, error) {
	content := []files{common}
	for i := range layers {
		content = append(content, files{fmt.Sprintf("layer-%d", i): {0o644, path}})
	}
	img, err := newImage(base, v1.Platform{OS: "linux", Architecture: "amd64"}, content)
	if err != nil {
		return nil, err
	}
	adds := []mutate.IndexAddendum{{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}}}
	for _, p := range others {
		img, err := newImage(nil, p, []files{{"platform": {0o644, path + p.String()}}})
		if err != nil {
			return nil, err
		}
		adds = append(adds, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
	}
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.DockerManifestList), adds...), nil
}

func newImage(base v1.Layer, platform v1.Platform, content []files) (v1.Image, error) {
	config := &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
	}
	img, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		return nil, fmt.Errorf("configure image: %w", err)
	}
	var layers []v1.Layer
	if base != nil {
		layers = append(layers, base)
	}
	for _, f := range content {
		layer, err := newLayer(f)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return mutate.AppendLayers(img, layers...)
}

func newLayer(content files) (v1.Layer, error) {
	var packed []pack.File
	for _, path := range slices.Sorted(maps.Keys(content)) {
		packed = append(packed, pack.File{Path: path, Mode: content[path].mode, Data: []byte(content[path].data)})
	}
	layer, err := pack.Layer(packed)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(layer.Uncompressed)
}
