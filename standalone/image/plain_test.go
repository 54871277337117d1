package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// plainArchive makes a tar as "docker save" does: the layers are not compressed. What the
// image is comes first.
func plainArchive(t *testing.T, img v1.Image) []byte {
	t.Helper()
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal(tarball.Manifest{{Config: "config.json", Layers: []string{"1/layer.tar", "2/layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, file := range []struct {
		name string
		data []byte
	}{
		{dockerManifest, manifest},
		{"config.json", config},
		{"1/layer.tar", tarOf(t, content[0])},
		{"2/layer.tar", tarOf(t, content[1])},
	} {
		if err := w.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(file.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The layers of docker's archive are read when they are unpacked, not to find out what
// the image is: that compressed them all, in each run.
func TestArchiveIsOpenedWithoutItsLayers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.tar")
	archive := plainArchive(t, testImage(t, plain))
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := open(t, path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{string(tarOf(t, content[0])), string(tarOf(t, content[1]))}
	if diff := cmp.Diff(want, read(t, o)); diff != "" {
		t.Error(diff)
	}
	// The end of the last layer cannot be read.
	if err := os.Truncate(path, int64(bytes.LastIndex(archive, []byte(content[1])))); err != nil {
		t.Fatal(err)
	}
	if o, err = open(t, path); err != nil || len(o.Layers) != 2 || len(o.Config.Cmd) != 1 {
		t.Errorf("opened %+v, %v", o, err)
	}
}

// A configuration that is too large is refused in docker's archive, too.
func TestLargeConfigurationInAnArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.tar")
	img := testImage(t, func(f *v1.ConfigFile) { f.Author = strings.Repeat("x", maxDocument) })
	if err := os.WriteFile(path, plainArchive(t, img), 0o600); err != nil {
		t.Fatal(err)
	}
	if o, err := open(t, path); err == nil {
		t.Errorf("opened %+v", o)
	}
}
