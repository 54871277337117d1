package qemu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/internal/intime"
)

// A directory that hangs does not hold up the end of a machine.
func TestDumpInAHungDirectory(t *testing.T) {
	dir, _ := hungfs.Mount(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	const noRoom = 1 << 40 // what is given up must leave no file when the test ends
	if _, err := makeDump(ctx, dir, noRoom); !errors.Is(err, intime.ErrUnanswered) || !strings.Contains(err.Error(), dir) {
		t.Errorf("make a dump: %v, want an error that names the directory and says that it hangs", err)
	}
}

// A complete dump stays, an incomplete one does not.
func TestEndDump(t *testing.T) {
	for _, complete := range []bool{true, false} {
		file, err := makeDump(t.Context(), filepath.Join(t.TempDir(), "a", "b"), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := endDump(t.Context(), file, complete); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(file.Name()); (err == nil) != complete {
			t.Errorf("complete %v: %v", complete, err)
		}
	}
}
