package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
)

// A limit below what is in use is refused, by the number that is asked of the kernel
// before and by one that cannot be asked.
func TestFitMemory(t *testing.T) {
	for name, test := range map[string]struct {
		reclaim bool
		limit   int64
		refused bool
		asked   string
	}{
		"less than is in use":                 {true, 3000, true, "1096"},
		"less, and nothing can be reclaimed":  {false, 3000, true, ""},
		"as much":                             {true, 4096, false, ""},
		"more, and nothing can be reclaimed":  {false, 5000, false, ""},
		"more than is in use is not asked of": {true, 5000, false, ""},
	} {
		dir := t.TempDir()
		write := func(file, text string) {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("memory.current", "4096\n")
		if test.reclaim {
			write("memory.reclaim", "")
		}
		if err := fitMemory(t.Context(), dir, test.limit); errdefs.IsFailedPrecondition(err) != test.refused || err != nil && !test.refused {
			t.Errorf("%s: %v, refused %v", name, err, test.refused)
		}
		asked, err := os.ReadFile(filepath.Join(dir, "memory.reclaim"))
		if string(asked) != test.asked || os.IsNotExist(err) == test.reclaim {
			t.Errorf("%s: asked to reclaim %q (%v), want %q", name, asked, err, test.asked)
		}
	}
}

// For a host that does not wait any more, nothing is reclaimed.
func TestFitMemoryForNoHost(t *testing.T) {
	dir := t.TempDir()
	reclaim := filepath.Join(dir, "memory.reclaim")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "memory.current"), []byte("4096\n"), 0o600), os.WriteFile(reclaim, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	err := fitMemory(ctx, dir, 3000)
	if asked, readErr := os.ReadFile(reclaim); !errors.Is(err, context.Canceled) || len(asked) != 0 || readErr != nil {
		t.Errorf("%v, asked for %q, %v", err, asked, readErr)
	}
}
