package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// content has the contents of the test image's layers, each a tar with one file.
var content = []string{"first layer", "second layer"}

func tarOf(t testing.TB, data string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(data))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func testImage(t testing.TB, change func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	img := empty.Image
	for _, data := range content {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(tarOf(t, data))), nil
		})
		if err == nil {
			img, err = mutate.AppendLayers(img, layer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = platform.OS, platform.Architecture
	file.Config.Cmd = []string{"hello"}
	change(file)
	if img, err = mutate.ConfigFile(img, file); err != nil {
		t.Fatal(err)
	}
	return img
}

func plain(*v1.ConfigFile) {}

func writeLayout(t *testing.T, images ...v1.Image) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for i, img := range images {
		if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": fmt.Sprintf("v%d", i+1)})); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writeDocker(t *testing.T, img v1.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	tag, err := name.NewTag("example.test/app:1")
	if err == nil {
		err = tarball.WriteToFile(path, tag, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// packed makes a tar of a directory's files, and zipped compresses a file.
func packed(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "packed.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func zipped(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data)
	_ = z.Close()
	if err := os.WriteFile(path+".gz", b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path + ".gz"
}

// serve runs a registry with the image app:1; wanted is the Authorization header
// that it requires, if any.
func serve(t *testing.T, img v1.Image, wanted string) string {
	t.Helper()
	plainRegistry := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	locked := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if locked && r.Header.Get("Authorization") != wanted {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		plainRegistry.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	at := strings.TrimPrefix(server.URL, "http://") + "/app:1"
	ref, err := name.ParseReference(at)
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	locked = wanted != ""
	return at
}

func open(t *testing.T, text string) (*Opened, error) {
	t.Helper()
	ref, err := Parse(text)
	if err != nil {
		return nil, err
	}
	o, err := Open(context.Background(), ref, t.TempDir())
	if err == nil {
		t.Cleanup(func() { _ = o.Close() })
	}
	return o, err
}

// read returns the layers' content, and checks that the bytes counted match the
// sizes.
func read(t *testing.T, o *Opened) (layers []string) {
	t.Helper()
	for _, l := range o.Layers {
		counted := int64(0)
		r, err := l.Open(func(n int) { counted += int64(n) })
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if counted == 0 || l.Size != 0 && counted != l.Size {
			t.Errorf("counted %d bytes of a layer of %d", counted, l.Size)
		}
		layers = append(layers, string(data))
	}
	return layers
}

func TestEachKindOfPlace(t *testing.T) {
	img := testImage(t, plain)
	dir, docker := writeLayout(t, img), writeDocker(t, img)
	host := serve(t, img, "")
	for name, text := range map[string]string{
		"layout":                dir,
		"layout with its tag":   "oci:" + dir + ":v1",
		"layout's tar":          packed(t, dir),
		"layout's tar, gzip":    zipped(t, packed(t, dir)),
		"docker archive":        docker,
		"docker archive, gzip":  zipped(t, docker),
		"docker archive, named": "docker-archive:" + docker + ":example.test/app:1",
		"registry":              host,
		"registry, in full":     "docker://" + host,
	} {
		t.Run(name, func(t *testing.T) {
			o, err := open(t, text)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{string(tarOf(t, content[0])), string(tarOf(t, content[1]))}
			if diff := cmp.Diff(want, read(t, o)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"hello"}, o.Config.Cmd); diff != "" {
				t.Error(diff)
			}
			if ids := []string{o.Layers[0].DiffID.Algorithm().String(), o.Layers[1].DiffID.Algorithm().String()}; ids[0] != "sha256" || ids[1] != "sha256" {
				t.Errorf("sums of layers: %v", o.Layers)
			}
		})
	}
}

func TestZstdLayer(t *testing.T) {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = z.Write([]byte("content"))
	_ = z.Close()
	layer, err := layerOf(static.NewLayer(b.Bytes(), types.DockerLayer), "sha256:x", true)
	if err != nil {
		t.Fatal(err)
	}
	r, err := layer.Open(func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); string(data) != "content" || err != nil {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestRegistryCredentials(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("me:secret"))
	host := serve(t, testImage(t, plain), "Basic "+auth)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	if _, err := open(t, host); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without credentials: %v", err)
	}
	config := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, strings.Split(host, "/")[0], auth)
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, host); err != nil {
		t.Errorf("with credentials: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	two := writeLayout(t, testImage(t, plain), testImage(t, func(f *v1.ConfigFile) { f.Author = "another" }))
	foreign := writeLayout(t, testImage(t, func(f *v1.ConfigFile) { f.Architecture = "s390x" }))
	forged := writeLayout(t, testImage(t, plain))
	forge(t, forged)
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, bytes.Repeat([]byte("junk"), 1024), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := packed(t, t.TempDir())
	host := serve(t, testImage(t, plain), "")
	for text, says := range map[string]string{
		two:                          "2 images (v1, v2): append :TAG",
		two + ":v3":                  `no image for linux/amd64 with the tag "v3"`,
		foreign:                      "it is for linux/s390x",
		forged:                       "is not that of sha256:",
		junk:                         "read tar",
		empty:                        "neither manifest.json nor oci-layout",
		host[:len(host)-1] + "2":     "pull: ",
		"UPPER/case":                 "could not parse reference",
		"/no/such/image":             "no such file",
		"./no/such/image":            "no such file",
		"oci:":                       "no path",
		"docker-archive:/no/such":    "no such file",
		"/dev/null":                  "neither a directory nor a regular file",
		"":                           "no image named",
		"docker-archive:" + junk:     "read archive",
		"oci-archive:" + empty:       "read layout",
		"oci:" + filepath.Dir(junk):  "read layout",
		"docker://127.0.0.1:1/x:y:z": "could not parse reference",
	} {
		o, err := open(t, text)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("image %s: got %v, %v; want an error with %q", text, o, err, says)
		}
	}
}

// forge changes the configuration of a layout's only image.
func forge(t *testing.T, dir string) {
	t.Helper()
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range blobs {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(`"hello"`)) {
			if err := os.WriteFile(path, bytes.Replace(data, []byte("hello"), []byte("jello"), 1), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestParse(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("root/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Reference{
		"busybox":               {Kind: Registry, Tag: "busybox"},
		"localhost:5000/a/b:1":  {Kind: Registry, Tag: "localhost:5000/a/b:1"},
		"docker://root":         {Kind: Registry, Tag: "root"},
		"docker:27":             {Kind: Registry, Tag: "docker:27"},
		"root":                  {Kind: Rootfs, Path: dir + "/root"},
		"./root":                {Kind: Rootfs, Path: dir + "/root"},
		"rootfs:root":           {Kind: Rootfs, Path: dir + "/root"},
		"oci:root:1":            {Kind: Layout, Path: dir + "/root", Tag: "1"},
		"oci-archive:later.tar": {Kind: LayoutArchive, Path: dir + "/later.tar"},
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	if _, err := Parse("./root:tag"); err == nil {
		t.Error("a root file system with a tag was taken")
	}
}

// The content of a tar goes where the caller sweeps, not to the host's directory for
// temporary files, which may be in memory.
func TestLayoutIsExtractedToTheStore(t *testing.T) {
	file := packed(t, writeLayout(t, testImage(t, plain)))
	scratch := t.TempDir()
	t.Setenv("TMPDIR", "/nonexistent")
	ref, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Open(context.Background(), ref, scratch)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(scratch); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want one directory", entries, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(scratch); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v are left", entries, err)
	}
}

// A tar of a layout may contain names that lead elsewhere.
func TestLayoutIsExtractedInside(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "evil.tar"))
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	for _, h := range []tar.Header{
		{Name: "../canary", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "blobs/../../canary", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "blobs", Typeflag: tar.TypeSymlink, Linkname: ".."},
		{Name: "blobs/sha256/" + strings.Repeat("a", 64), Typeflag: tar.TypeReg, Mode: 0o4777},
		{Name: "index.json", Typeflag: tar.TypeSymlink, Linkname: "../canary"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	_ = f.Close()
	if err := os.Mkdir(filepath.Join(dir, "out"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := extractLayout(t.Context(), f.Name(), filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	var seen []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, _ := d.Info()
			seen = append(seen, strings.TrimPrefix(path, dir+"/")+" "+info.Mode().String())
		}
		return err
	})
	want := []string{"evil.tar -rw-r--r--", "out/blobs/sha256/" + strings.Repeat("a", 64) + " -rw-------"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}
