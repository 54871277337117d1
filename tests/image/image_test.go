package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/katabox/katabox/deploy/image/pack"
)

func testImages() []image {
	return []image{
		busyboxImage([]byte("program"), []string{"bin/busybox", "bin/sh", "usr/bin/env"}),
		pauseImage([]byte("pause")),
	}
}

func TestLayoutIsReproducible(t *testing.T) {
	dir := t.TempDir()
	var got [2][]byte
	for i := range got {
		path := filepath.Join(dir, "a.tar")
		if err := writeLayout(path, testImages()); err != nil {
			t.Fatal(err)
		}
		var err error
		if got[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got[0], got[1]) {
		t.Error("two builds of the same inputs differ")
	}
}

func TestLayoutNamesItsImages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := writeLayout(path, testImages()); err != nil {
		t.Fatal(err)
	}
	entries := readTar(t, path)
	var index v1.Index
	if err := json.Unmarshal(entries["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range index.Manifests {
		names = append(names, m.Annotations[pack.NameAnnotation])
		if _, ok := entries["blobs/sha256/"+m.Digest.Encoded()]; !ok {
			t.Errorf("manifest %s is not in the archive", m.Digest)
		}
	}
	if diff := cmp.Diff([]string{Busybox, Pause}, names); diff != "" {
		t.Errorf("image names (-want +got):\n%s", diff)
	}
}

func TestOpenReadsAnImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := writeLayout(path, testImages()); err != nil {
		t.Fatal(err)
	}
	layer, err := Open(path, Pause)
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	if got := string(readEntries(t, layer)["pause"]); got != "pause" {
		t.Errorf("the program is %q", got)
	}
	if _, err := Open(path, "katabox.test/other:latest"); err == nil {
		t.Error("an image that is not there: no error")
	}
}

func readTar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	return readEntries(t, f)
}

func readEntries(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()
	entries := map[string][]byte{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		if entries[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// Suites that run in parallel on a fresh checkout build the archive
// concurrently.
func TestLayoutIsWrittenByManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := writeLayout(path, testImages()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	left, err := filepath.Glob(path + ".*")
	if err != nil || len(left) > 0 {
		t.Errorf("left beside the archive: %q, %v", left, err)
	}
}
