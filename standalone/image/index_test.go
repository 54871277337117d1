package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// An index within a layout's is compared with its digest, as manifests are.
func TestIndexIsCompared(t *testing.T) {
	inner := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: testImage(t, plain), Descriptor: v1.Descriptor{Platform: &platform}})
	digest, err := inner.Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "layout")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendIndex(inner); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "blobs/sha256", digest.Hex), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(" "); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir); err == nil || !strings.Contains(err.Error(), "is not that of "+digest.String()) {
		t.Errorf("a changed index: %v", err)
	}
}
