package store

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// Commands open the store and use it while other containers end, each with a sweep:
// they still find overlayfs, and the sweep removes nothing that is in use.
func TestOverlayIsTriedDuringSweeps(t *testing.T) {
	s := newStore(t)
	if !stacks(t, s) {
		t.Skip("no overlayfs here")
	}
	stop, swept := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			err := s.Sweep()
			select {
			case <-stop:
				swept <- err
				return
			default:
			}
			if err != nil {
				swept <- err
				return
			}
		}
	}()
	for range 60 {
		next, err := Open(s.root)
		if err != nil {
			t.Fatal(err)
		}
		unlock, err := next.Use(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		overlay, err := next.overlay()
		if err != nil || !overlay {
			t.Errorf("overlayfs works: %v, %v", overlay, err)
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-swept; err != nil {
		t.Errorf("sweep: %v", err)
	}
}

// If overlayfs cannot be tried, nothing is copied instead.
func TestOverlayCannotBeTried(t *testing.T) {
	s := newStore(t)
	s.overlay = func() (bool, error) { return false, errdefs.ErrUnavailable }
	if _, err := s.MakeContainer("c", Image{Name: "image", Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rootfs("c", filepath.Join(t.TempDir(), "rootfs")); !errdefs.IsUnavailable(err) {
		t.Errorf("a root file system when overlayfs could not be tried: %v", err)
	}
}

// An image in several layers cannot be copied: the error says why.
func TestLayersWithoutOverlay(t *testing.T) {
	s := newStore(t)
	if !stacks(t, s) {
		t.Skip("no overlayfs here")
	}
	img := add(t, s, "image", layerOf(t, fileEntry("a", "a")), layerOf(t, fileEntry("b", "b")))
	if _, err := s.MakeContainer("c", img); err != nil {
		t.Fatal(err)
	}
	s.overlay = noOverlay
	_, err := s.Rootfs("c", filepath.Join(t.TempDir(), "rootfs"))
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "overlayfs") {
		t.Errorf("its root file system: %v", err)
	}
}
