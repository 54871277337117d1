package store

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
)

// The names of layers are short, since an overlay's options must fit into a page, and
// long enough that none can be made for another's name: that takes 2^72 attempts.
func TestLayerNames(t *testing.T) {
	first := digest.Digest("sha256:" + strings.Repeat("0", 64))
	seen := map[string]bool{}
	for bit := range 144 {
		digits := []byte(first.Encoded())
		digits[bit/4] = "8421"[bit%4]
		name := layerName(digest.Digest("sha256:" + string(digits)))
		if seen[name] || len(name) != 24 || !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(name) {
			t.Errorf("bit %d: name %q, known %t", bit, name, seen[name])
		}
		seen[name] = true
	}
	if name := layerName(identity.ChainID([]digest.Digest{digest.SHA512.FromString("x")})); len(name) != 24 {
		t.Errorf("name %q", name)
	}
}

// The store's path becomes a part of mount options.
func TestStoreWithAnOddPath(t *testing.T) {
	s := newStore(t)
	if !stacks(t, s) {
		t.Skip("no overlayfs here")
	}
	for _, name := range []string{"a:b", "a,b", `a\b`} {
		root := filepath.Join(t.TempDir(), name)
		odd, err := Open(root)
		if err != nil {
			t.Fatal(err)
		}
		_, err = odd.Add(t.Context(), Source{Layers: []Layer{layerOf(t, fileEntry("a", "a"))}}, quiet{})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), root) {
			t.Errorf("store %s: %v", root, err)
		}
	}
}

// Characters that mean something in a pattern mean nothing in the store's path.
func TestStoreInBrackets(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	s, err := Open(filepath.Join(t.TempDir(), "[a]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, forget := range []bool{false, true} {
		img := add(t, s, "image", layerOf(t, fileEntry("a", "a")))
		if _, err := s.MakeContainer("c", img); err != nil {
			t.Fatal(err)
		}
		if err := sweepStore(t, s, forget); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Find("image"); err != nil {
			t.Errorf("forget %t: an image that a container runs: %v", forget, err)
		}
		if err := s.RemoveContainer("c"); err != nil {
			t.Fatal(err)
		}
		if err := sweepStore(t, s, forget); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Find("image"); (err != nil) != forget {
			t.Errorf("forget %t: an image that none runs: %v", forget, err)
		}
	}
}
