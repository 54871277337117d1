package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func layersOf(t *testing.T, s *Store) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.root, layersDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSweepFreesWhatNothingUses(t *testing.T) {
	s := newStore(t)
	base, top, other := layerOf(t, fileEntry("base", "b")), layerOf(t, fileEntry("top", "t")), layerOf(t, fileEntry("other", "o"))
	old := add(t, s, "image", base, top)
	if _, err := s.MakeContainer("c1", old); err != nil {
		t.Fatal(err)
	}
	renewed := add(t, s, "image", base, other)
	if err := os.Mkdir(s.layerPath(newPrefix+"killed"), 0o700); err != nil {
		t.Fatal(err)
	}
	sweep := func(unused bool, want ...string) {
		t.Helper()
		if err := sweepStore(t, s, unused); err != nil {
			t.Fatal(err)
		}
		got := layersOf(t, s)
		slices.Sort(want)
		if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
			t.Error(diff)
		}
	}
	if !stacks(t, s) {
		t.Skip("layers are not shared without overlayfs")
	}
	sweep(false, append(slices.Clone(old.Layers), renewed.Layers...)...)
	if err := s.RemoveContainer("c1"); err != nil {
		t.Fatal(err)
	}
	sweep(false, renewed.Layers...)
	sweep(true)
	if _, err := s.Find("image"); !errdefs.IsNotFound(err) {
		t.Errorf("find after the sweep: %v", err)
	}
}

// sweepStore removes unused layers, and unused images with images.
func sweepStore(t *testing.T, s *Store, images bool) error {
	if images {
		return s.SweepImages(t.Context())
	}
	return s.Sweep()
}

// A sweep must not remove what another process is unpacking and has not recorded
// yet.
func TestSweepLeavesTheStoreToItsUsers(t *testing.T) {
	s := newStore(t)
	unlock, err := s.Use(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	img := add(t, s, "", layerOf(t, fileEntry("a", "a")))
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	// The removal that a user asks for does not pass over it in silence.
	brief, cancel := context.WithTimeout(t.Context(), 2*lockPause)
	defer cancel()
	if err := s.SweepImages(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("remove images: %v", err)
	}
	if diff := cmp.Diff(img.Layers, layersOf(t, s)); diff != "" {
		t.Error(diff)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := s.SweepImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoLayer(t, s)
}

func TestSameLayerFromMany(t *testing.T) {
	s := newStore(t)
	layer := layerOf(t, fileEntry("a", "a"), fileEntry("b/c", "c"))
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			_, errs[i] = s.Add(context.Background(), Source{Name: fmt.Sprint(i), Layers: []Layer{layer}}, quiet{})
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := len(layersOf(t, s)); n != 1 {
		t.Errorf("%d layers, want 1: %v", n, layersOf(t, s))
	}
}

// A layer that exists already is not read again.
func TestLayerIsUnpackedOnce(t *testing.T) {
	s := newStore(t)
	layer := layerOf(t, fileEntry("a", "a"))
	first := add(t, s, "one", layer)
	layer.Open = func(func(int)) (io.ReadCloser, error) { return nil, errors.New("asked again") }
	if diff := cmp.Diff(first.Layers, add(t, s, "two", layer).Layers); diff != "" {
		t.Error(diff)
	}
}

func TestContainerNames(t *testing.T) {
	s := newStore(t)
	img := add(t, s, "image", layerOf(t, fileEntry("a", "a")))
	for _, name := range []string{"", ".", "..", "../x", "a/b", "-a", "a b", "é"} {
		if _, err := s.MakeContainer(name, img); !errdefs.IsInvalidArgument(err) {
			t.Errorf("name %q: %v", name, err)
		}
		if err := s.RemoveContainer(name); err != nil {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if _, err := s.MakeContainer("web-1.x", img); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MakeContainer("web-1.x", img); !errdefs.IsAlreadyExists(err) {
		t.Errorf("name that is taken: %v", err)
	}
	names, err := s.Containers()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web-1.x"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestRootfs(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		img := add(t, s, "image", layerOf(t, fileEntry("a", "a")), layerOf(t, fileEntry("b", "b")))
		dir, err := s.MakeContainer("c", img)
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(t.TempDir(), "rootfs")
		mounts, err := s.Rootfs("c", target)
		if err != nil {
			t.Fatal(err)
		}
		if !stacks(t, s) {
			if _, err := os.Stat(filepath.Join(target, "b")); err != nil || len(mounts) != 0 {
				t.Errorf("copy: %v, mounts %v", err, mounts)
			}
			return
		}
		layers := filepath.Join(s.root, layersDir)
		want := []string{
			"lowerdir=" + filepath.Join(layers, img.Layers[1]) + ":" + filepath.Join(layers, img.Layers[0]),
			"upperdir=" + dir + "/upper", "workdir=" + dir + "/work",
		}
		if diff := cmp.Diff(want, mounts[0].Options); diff != "" || len(mounts) != 1 {
			t.Error(diff)
		}
	})
}

// The root directory that a container sees is its own: with the mode and the owner of
// the image's.
func TestRootDirectoryOfADirectory(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		image := t.TempDir()
		if err := errors.Join(os.Chown(image, 12, 34), os.Chmod(image, 0o751|os.ModeSticky)); err != nil {
			t.Fatal(err)
		}
		dir, err := s.MakeContainer("c", Image{Name: "image", Dir: image})
		if err != nil {
			t.Fatal(err)
		}
		root := filepath.Join(dir, "rootfs")
		if _, err := s.Rootfs("c", root); err != nil {
			t.Fatal(err)
		}
		if stacks(t, s) {
			root = filepath.Join(dir, "upper")
		}
		var stat unix.Stat_t
		if err := unix.Stat(root, &stat); err != nil || stat.Uid != 12 || stat.Gid != 34 || stat.Mode&0o7777 != 0o1751 {
			t.Errorf("owner %d:%d, mode %o, %v; want 12:34 and 1751", stat.Uid, stat.Gid, stat.Mode&0o7777, err)
		}
	})
}

// A sweep leaves the files of an image to the process that looks at them: an exec
// does while another container ends.
func TestSweepLeavesAView(t *testing.T) {
	s := newStore(t)
	img := add(t, s, "image", layerOf(t, fileEntry("a", "a")), layerOf(t, fileEntry("b", "b")))
	err := s.View(t.Context(), img, func(root string) error {
		if err := s.Sweep(); err != nil {
			return err
		}
		_, err := os.Stat(filepath.Join(root, "a"))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(img.Layers)), layersOf(t, s)); diff != "" {
		t.Error(diff)
	}
}
