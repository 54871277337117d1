package persist

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// An engine deletes all containers of a dead shim at once: each delete removes the
// record, and none fails because of another one's mark.
func TestRemovalsAtOnce(t *testing.T) {
	root := t.TempDir()
	for range 300 {
		if _, err := Create(root, Owner{}, "pod"); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error)
		for range 4 {
			go func() {
				errs <- errors.Join(BeginRemoval(root, "pod"), Remove(root, "pod"))
			}()
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(filepath.Join(root, "pod")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the record is left: %v", err)
		}
	}
}
