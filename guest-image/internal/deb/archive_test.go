package deb

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/guest-image/internal/debtest"
)

// visited walks a package or tar and returns the content by name.
func visited(walk func(Visit) error) (map[string]string, error) {
	got := map[string]string{}
	err := walk(func(name string, size int64, content io.Reader) error {
		data, err := io.ReadAll(content)
		if int64(len(data)) != size {
			return errors.New("size differs")
		}
		got[name] = string(data)
		return err
	})
	return got, err
}

func TestWalk(t *testing.T) {
	files := map[string][]byte{"boot/vmlinuz-1": []byte("kernel"), "lib/modules/1/a.ko": bytes.Repeat([]byte("x"), 1<<20)}
	deb := debtest.Build(t, files)
	got, err := visited(func(v Visit) error { return Walk(t.Context(), deb, v) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"boot/vmlinuz-1": "kernel", "lib/modules/1/a.ko": string(files["lib/modules/1/a.ko"])}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWalkEndsWhenVisitFails(t *testing.T) {
	// More than a pipe holds is left unread.
	deb := debtest.Build(t, map[string][]byte{"a": []byte("x"), "b": bytes.Repeat([]byte("x"), 1<<20)})
	stop := errors.New("stop")
	calls := 0
	err := Walk(t.Context(), deb, func(string, int64, io.Reader) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("error %v after %d calls", err, calls)
	}
}

func TestWalkErrors(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.deb")
	if err := os.WriteFile(bad, []byte("no archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{bad: "dpkg-deb: error", bad + ".gone": "No such file"} {
		_, err := visited(func(v Visit) error { return Walk(t.Context(), file, v) })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", file, err, want)
		}
	}
	t.Setenv("PATH", "")
	if err := Walk(t.Context(), bad, nil); err == nil || !strings.Contains(err.Error(), "Debian package dpkg") {
		t.Errorf("without dpkg-deb: %v", err)
	}
}

func TestWalkTarTakesNoOddFiles(t *testing.T) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, hdr := range []*tar.Header{
		{Name: "./boot/", Typeflag: tar.TypeDir},
		{Name: "./boot/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "./boot/hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		{Name: "./boot/pipe", Typeflag: tar.TypeFifo},
		{Name: "../../etc/passwd", Typeflag: tar.TypeReg},
		{Name: "/abs", Typeflag: tar.TypeReg},
		{Name: "./boot/../b", Typeflag: tar.TypeReg},
	} {
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := visited(func(v Visit) error { return walkTar(&out, v) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"etc/passwd": "", "abs": "", "b": ""}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWalkTarCut(t *testing.T) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "a", Size: 100, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := visited(func(v Visit) error { return walkTar(&out, v) }); err == nil {
		t.Error("no error for a tar that ends early")
	}
}
