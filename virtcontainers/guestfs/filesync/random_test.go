package filesync

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// After any changes to a source, in any order, the copy equals the source.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			source, g := t.TempDir(), newGuest(t)
			start(t, g, source, roomy)
			for range 5 {
				for range 40 {
					randomChange(random, source)
				}
				g.follows(t, source)
			}
		})
	}
}

// randomChange makes a random change to a random path, and ignores errors.
func randomChange(random *rand.Rand, source string) {
	path := func() string {
		at := source
		for range 1 + random.IntN(3) {
			at = filepath.Join(at, string("abc"[random.IntN(3)]))
		}
		return at
	}
	switch p := path(); random.IntN(9) {
	case 0, 1:
		if f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o600); err == nil {
			_, _ = fmt.Fprint(f, random.Uint32())
			_ = f.Close()
		}
	case 2, 3:
		_ = os.Mkdir(p, 0o755)
	case 4:
		// It opens the directory above, and would block if that were a FIFO.
		if info, err := os.Stat(filepath.Dir(p)); err == nil && info.IsDir() {
			_ = os.RemoveAll(p)
		}
	case 5:
		_ = os.Rename(p, path())
	case 6:
		_ = os.Symlink(filepath.Base(path()), p)
	case 7:
		if info, err := os.Lstat(p); err == nil && info.Mode()&os.ModeSymlink == 0 {
			_ = os.Chmod(p, os.FileMode(0o700|random.IntN(0o100)))
		}
	case 8:
		_ = unix.Mkfifo(p, 0o600)
	}
}
