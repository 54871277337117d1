package virtiofs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

const (
	envPlain = "KATABOX_TEST_PLAIN"
	envSeed  = "KATABOX_TEST_SEED"
)

// TestRandomOperations makes the same random operations on a mounted share and
// on a plain directory, and compares every result: error numbers, attributes,
// contents, lists.
func TestRandomOperations(t *testing.T) {
	for name, as := range servings {
		t.Run(name, func(t *testing.T) {
			seed := strconv.FormatInt(time.Now().UnixNano(), 10)
			if given := os.Getenv(envSeed); given != "" {
				seed = given
			}
			base := t.TempDir()
			shared, plain := filepath.Join(base, "shared"), filepath.Join(base, "plain")
			for _, dir := range []string{shared, plain} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%s=%s", envSeed, seed)
			inMount(t, "TestRandomInside", mountDir(t, shared, as), envPlain+"="+plain, envSeed+"="+seed)
		})
	}
}

// TestRandomInside is what TestRandomOperations runs.
func TestRandomInside(t *testing.T) {
	shared := newWorld(t, inside(t))
	plain := newWorld(t, os.Getenv(envPlain))
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	const operations = 4000
	random := rand.New(rand.NewPCG(seed, 1))
	var last []string
	for range operations {
		op := choose(random)
		want, got := plain.do(op), shared.do(op)
		last = append(last, fmt.Sprintf("%v -> %s", op, want))
		if got != want {
			t.Fatalf("%v: %s, want %s; before:\n%s", op, got, want, strings.Join(last[max(0, len(last)-25):], "\n"))
		}
	}
	if got, want := shared.do(step{kind: "tree"}), plain.do(step{kind: "tree"}); got != want {
		t.Errorf("the trees differ:\n%s\nwant\n%s", got, want)
	}
}

// step is one operation; the meaning of its fields depends on the kind.
type step struct {
	kind string
	a, b string
	n, m int
}

// choose makes an operation on one of a few names, so that operations interact.
func choose(r *rand.Rand) step {
	path := func() string {
		p := []string{string(rune('a' + r.IntN(4)))}
		for r.IntN(3) == 0 && len(p) < 4 {
			p = append(p, string(rune('a'+r.IntN(4))))
		}
		return strings.Join(p, "/")
	}
	kinds := slices.Sorted(mapKeys(kindsOfSteps))
	return step{kinds[r.IntN(len(kinds))], path(), path(), r.IntN(20000), r.IntN(1 << 12)}
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// world is a directory, and a thread whose root it is, so that no random
// operation leads out of it.
type world struct {
	calls chan func()
	files [6]int // open ones, -1 for none
}

func newWorld(t *testing.T, dir string) *world {
	w := &world{calls: make(chan func())}
	for i := range w.files {
		w.files[i] = -1
	}
	ready := make(chan error)
	ownthread.Go(func() {
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chroot(dir)
		}
		if err == nil {
			err = unix.Chdir("/")
		}
		unix.Umask(0o022)
		ready <- err
		for call := range w.calls {
			call()
		}
	})
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range w.files {
			_ = unix.Close(fd)
		}
		close(w.calls)
	})
	return w
}

// do makes an operation and describes the result.
func (w *world) do(s step) string {
	result := make(chan string)
	w.calls <- func() {
		if s.kind == "tree" {
			result <- w.tree()
			return
		}
		result <- kindsOfSteps[s.kind](w, s)
	}
	return <-result
}

// tree describes everything in the directory.
func (w *world) tree() string {
	var b strings.Builder
	_ = filepath.WalkDir(".", func(p string, _ os.DirEntry, err error) error {
		data := ""
		var st unix.Stat_t
		if unix.Lstat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			text, _ := os.ReadFile(p)
			data = fmt.Sprintf("%x", text)
		}
		fmt.Fprintln(&b, p, err, look(p), len(data), data[:min(64, len(data))])
		return nil
	})
	runtime.KeepAlive(w)
	return b.String()
}

// look describes a file's attributes, except those that depend on the file
// system.
func look(p string) string {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return err.Error()
	}
	return attributes(&st)
}

func attributes(st *unix.Stat_t) string {
	size := st.Size
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		size = 0
	}
	return fmt.Sprintf("%o %d:%d %d links, %d bytes, device %d", st.Mode, st.Uid, st.Gid, st.Nlink, size, st.Rdev)
}
