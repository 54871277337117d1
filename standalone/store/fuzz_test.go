package store

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/google/go-cmp/cmp"
)

// FuzzApply unpacks a tar made from the fuzzer's script: each line is an entry,
// its first byte the kind, then the name and, after a space, the link's target or
// the data. It runs in a root that has nothing else, and the tree is one
// directory deeper than the canaries.
func FuzzApply(f *testing.F) {
	f.Add("d a\nf a/b data\nl a/c a/b\ns a/d ../../canary\nf a/d x")
	f.Add("s out ../..\nf out/canary x\nf out/.wh.canary \nf .wh..wh..opq ")
	f.Add("l x ../canary\nf x bad\nc dev \np fifo \nf .wh... x")
	f.Fuzz(func(t *testing.T, script string) {
		s := newStore(t)
		before := plantCanary(t, s)
		layer := rawLayer(scripted(script))
		root := filepath.Join(s.root, layersDir)
		for _, opts := range [][]archive.ApplyOpt{nil, {archive.WithConvertWhiteout(overlayWhiteout), archive.WithParents([]string{"/x"})}} {
			err := inRoot(s.root, func() error {
				all, err := layer.Open(func(int) {})
				if err != nil {
					return err
				}
				_, err = archive.Apply(context.Background(), "/"+filepath.Base(root), all, append(opts, archive.WithFilter(acceptable))...)
				return err
			})
			if err != nil && strings.Contains(err.Error(), "enter "+s.root) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, listTree(t, s.root, layersDir, imagesDir)); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// scripted makes a tar of a script, as far as possible.
func scripted(script string) []byte {
	kinds := map[byte]byte{'d': tar.TypeDir, 'f': tar.TypeReg, 'l': tar.TypeLink, 's': tar.TypeSymlink, 'c': tar.TypeChar, 'p': tar.TypeFifo}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, line := range strings.Split(script, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		name, value, _ := strings.Cut(rest, " ")
		if len(kind) != 1 || kinds[kind[0]] == 0 {
			continue
		}
		h := tar.Header{Name: name, Typeflag: kinds[kind[0]], Mode: 0o755, Devmajor: 1, Devminor: 3}
		switch h.Typeflag {
		case tar.TypeReg:
			h.Size = int64(len(value))
		case tar.TypeLink, tar.TypeSymlink:
			h.Linkname, value = value, ""
		default:
			value = ""
		}
		if w.WriteHeader(&h) == nil {
			_, _ = io.WriteString(w, value)
		}
	}
	_ = w.Close()
	return b.Bytes()
}
