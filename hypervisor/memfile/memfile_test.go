package memfile

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const size = 64 << 20

// sparse returns a memory file with some pages of data.
func sparse(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{1})
	for at, n := range map[int64]int{0: 4096, 1 << 20: 3 * copyBlock, 40<<20 + 8192: copyBlock + 4096, size - 4096: 4096} {
		data := make([]byte, n)
		_, _ = random.Read(data)
		if _, err := f.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// empty returns memory without a name, as a machine has.
func empty(t testing.TB, size int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCopy(t *testing.T) {
	from, to := sparse(t), empty(t, size)
	sum, err := Sum(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := Copy(to, from, sum); err != nil {
		t.Fatal(err)
	}
	want, got := make([]byte, size), make([]byte, size)
	if _, err := from.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := to.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs, %v", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(to.Fd()), &st); err != nil || st.Blocks*512 > 3<<20 {
		t.Errorf("the copy takes %d KiB, %v", st.Blocks/2, err)
	}
}

// A file that was changed, truncated or extended is detected.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(*os.File) error{
		"a byte": func(f *os.File) error { _, err := f.WriteAt([]byte{0x55, 0xaa}, 1<<20+17); return err },
		"data lost": func(f *os.File) error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1<<20, 4096)
		},
		"data more":  func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 20<<20); return err },
		"cut":        func(f *os.File) error { return f.Truncate(size - 4096) },
		"all lost":   func(f *os.File) error { return f.Truncate(0) },
		"lengthened": func(f *os.File) error { return f.Truncate(size + 4096) },
	} {
		t.Run(name, func(t *testing.T) {
			from := sparse(t)
			sum, err := Sum(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(from); err != nil {
				t.Fatal(err)
			}
			err = Copy(empty(t, size), from, sum)
			if err == nil || !strings.Contains(err.Error(), "checksum") && !strings.Contains(err.Error(), "bytes, the machine's memory") {
				t.Errorf("copy: %v", err)
			}
		})
	}
}

func TestClosed(t *testing.T) {
	from := sparse(t)
	_ = from.Close()
	if _, err := Sum(from); err == nil {
		t.Error("the sum of a closed file")
	}
	if err := Copy(empty(t, size), from, 0); err == nil {
		t.Error("a copy of a closed file")
	}
}

// BenchmarkCopy copies as much as a guest has used when its agent is up.
func BenchmarkCopy(b *testing.B) {
	from := empty(b, 2<<30)
	data := bytes.Repeat([]byte("katabox!"), 1<<17)
	for i := range int64(150) {
		if _, err := from.WriteAt(data, i*8<<20); err != nil {
			b.Fatal(err)
		}
	}
	sum, err := Sum(from)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		to := empty(b, 2<<30)
		if err := Copy(to, from, sum); err != nil {
			b.Fatal(err)
		}
		_ = to.Close()
	}
}
