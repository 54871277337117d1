package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// checkout makes the files from which the image is built.
func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{
		"bin/containerd-shim-kata-v2", "bin/kata-runtime", "configuration.toml", "LICENSE", "build/guest/initrd.img", "build/guest/vmlinux",
		"docs/man/kata-runtime.8",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(root, "bin/kata-runtime")
	if err := errors.Join(os.WriteFile(program, []byte("#!/bin/sh\necho \"$1 for $2\"\n"), 0o600), os.Chmod(program, 0o700)); err != nil {
		t.Fatal(err)
	}
	return root
}

func build(t *testing.T, root, version string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image")
	if err := run([]string{"-root", root, "-out", out, "-version", version}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestImageIsReproducible(t *testing.T) {
	root := checkout(t)
	var archives [2][]byte
	for i := range archives {
		var err error
		if archives[i], err = os.ReadFile(build(t, root, "1.0") + ".tar"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two builds of the same files differ")
	}
}

func TestImageIsValid(t *testing.T) {
	index, err := layout.ImageIndexFromPath(build(t, checkout(t), "1.0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
}

// An independent implementation reads the archive: containerd's importer, which
// checks the digest of each blob.
func TestContainerdImportsTheImage(t *testing.T) {
	file, err := os.Open(build(t, checkout(t), "1.0") + ".tar")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	store, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	desc, err := archive.ImportIndex(t.Context(), store, file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := content.ReadBlob(t.Context(), store, desc)
	if err != nil {
		t.Fatal(err)
	}
	var index specs.Index
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	if got := index.Manifests[0].Annotations[images.AnnotationImageName]; got != "katabox.local/installer:1.0" {
		t.Errorf("the image is named %q", got)
	}
	platform := platforms.Only(specs.Platform{OS: "linux", Architecture: runtime.GOARCH})
	ref, err := images.Config(t.Context(), store, index.Manifests[0], platform)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = content.ReadBlob(t.Context(), store, ref); err != nil {
		t.Fatal(err)
	}
	var config specs.Image
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	want := specs.ImageConfig{
		Entrypoint: []string{"/opt/kata/bin/kata-runtime"}, Cmd: []string{"install", "--host-root", "/host"},
		Labels: map[string]string{specs.AnnotationTitle: "Katabox's installer", specs.AnnotationVersion: "1.0", specs.AnnotationLicenses: "Apache-2.0"},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestWhatCannotBeBuilt(t *testing.T) {
	root := checkout(t)
	if err := run([]string{"-root", root, "-version", "a+b"}); err == nil || !strings.Contains(err.Error(), "cannot be a tag") {
		t.Errorf("a version that is not a tag: %v", err)
	}
	if err := os.Remove(filepath.Join(root, "bin/kata-runtime")); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-root", root, "-version", "1"}); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("without a program: %v", err)
	}
}
