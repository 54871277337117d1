package memfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

const smallSize = 5*pageSize + 64

var (
	testKey = Key{1, 2, 3}
	text    = bytes.Repeat([]byte("katabox!"), pageSize/8)
)

// noise returns data that cannot be compressed.
func noise(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(data)
	return data
}

// smallFiles returns two memory files, of which a small image has six records:
// the start, four blocks (the third is not compressed), the end.
func smallFiles(t testing.TB) []*os.File {
	t.Helper()
	files := []*os.File{empty(t, smallSize), empty(t, 4*pageSize)}
	put(t, files[0], text, 0)
	put(t, files[0], text, 2*pageSize)
	put(t, files[0], noise(64), 5*pageSize)
	put(t, files[1], text, pageSize)
	return files
}

const smallMemory = 3*pageSize + 64

func put(t testing.TB, file *os.File, data []byte, at int64) {
	t.Helper()
	if _, err := file.WriteAt(data, at); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, file *os.File) []byte {
	t.Helper()
	_, size := allocated(t, file)
	data := make([]byte, size)
	if _, err := file.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	return data
}

// allocated returns how many bytes of memory a file has, and its size.
func allocated(t testing.TB, file *os.File) (int64, int64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512, st.Size
}

// emptied makes files all holes and checks that they are.
func emptied(t testing.TB, files []*os.File) {
	t.Helper()
	for _, file := range files {
		_, want := allocated(t, file)
		if err := discard(file); err != nil {
			t.Fatal(err)
		}
		if used, size := allocated(t, file); used != 0 || size != want {
			t.Fatalf("a discarded file has %d bytes of %d, want 0 of %d", used, size, want)
		}
	}
}

// smallImage returns an image of smallFiles and its records; the first has the
// magic as well.
func smallImage(t testing.TB) ([]byte, [][]byte) {
	t.Helper()
	var out bytes.Buffer
	stored, err := StoreImage(t.Context(), &out, testKey, Files(smallFiles(t)...), smallMemory)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Stored{Memory: smallMemory, Image: uint64(out.Len())}); stored != want {
		t.Fatalf("stored %+v, want %+v", stored, want)
	}
	var kinds []byte
	var records [][]byte
	for begin, at := 0, len(imageMagic); at < out.Len(); begin = at {
		h, err := parseHeader(out.Bytes()[at:])
		if err != nil {
			t.Fatal(err)
		}
		at += headerSize + int(h.data) + tagSize
		kinds = append(kinds, h.kind)
		records = append(records, out.Bytes()[begin:at])
	}
	if want := []byte{recordStart, recordS2, recordS2, recordPlain, recordS2, recordEnd}; !bytes.Equal(kinds, want) {
		t.Fatalf("the records' kinds are %d, want %d", kinds, want)
	}
	return out.Bytes(), records
}

func TestImage(t *testing.T) {
	one, two := empty(t, size), empty(t, 3*pageSize+100)
	put(t, one, noise(imageBlock+3*pageSize), 8*pageSize) // two blocks
	put(t, one, slices.Concat(text, make([]byte, 5*pageSize), text, make([]byte, pageSize)), 40<<20)
	put(t, one, text, size-pageSize)
	put(t, two, make([]byte, pageSize), 0) // nothing but zeros
	put(t, two, []byte("the end"), 3*pageSize+93)
	files := []*os.File{one, two}
	want := [][]byte{content(t, one), content(t, two)}
	const inOne = imageBlock + 12*pageSize // of which 6 pages are zeros

	var image bytes.Buffer
	stored, err := StoreImage(t.Context(), &image, testKey, Files(files...), size)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Stored{Memory: inOne + pageSize + 100, Image: uint64(image.Len())}); stored != want {
		t.Errorf("stored %+v, want %+v", stored, want)
	}
	emptied(t, files)
	// A Read may return less than was asked for.
	if err := RestoreImage(t.Context(), iotest.HalfReader(&image), testKey, Files(files...)); err != nil {
		t.Fatal(err)
	}
	for i, wantUsed := range []int64{inOne - 6*pageSize, pageSize} {
		if !bytes.Equal(content(t, files[i]), want[i]) {
			t.Errorf("file %d differs", i)
		}
		if used, _ := allocated(t, files[i]); used != wantUsed {
			t.Errorf("file %d has %d bytes of memory, want %d", i, used, wantUsed)
		}
	}
}

// Memory of zeros, and no memory at all, are images too.
func TestImageEmpty(t *testing.T) {
	for _, files := range [][]*os.File{nil, {empty(t, 0)}, {empty(t, size), empty(t, size)}} {
		var image bytes.Buffer
		stored, err := StoreImage(t.Context(), &image, testKey, Files(files...), 0)
		if err != nil || stored.Memory != 0 {
			t.Errorf("%d files: stored %+v, %v", len(files), stored, err)
		}
		emptied(t, files)
		if err := RestoreImage(t.Context(), &image, testKey, Files(files...)); err != nil {
			t.Errorf("%d files: %v", len(files), err)
		}
	}
}

func TestImageIsSecret(t *testing.T) {
	image, _ := smallImage(t)
	for _, secret := range [][]byte{text[:16], noise(64)[:16]} {
		if bytes.Contains(image, secret) {
			t.Errorf("the image has %q in the clear", secret)
		}
	}
}

// restoreDamaged restores into small files and returns the error.
func restoreDamaged(t *testing.T, files []*os.File, image []byte) error {
	t.Helper()
	emptied(t, files)
	return RestoreImage(t.Context(), bytes.NewReader(image), testKey, Files(files...))
}

func TestImageChanged(t *testing.T) {
	image, _ := smallImage(t)
	files := smallFiles(t)
	for at := range image {
		changed := bytes.Clone(image)
		changed[at] ^= 1 << (at % 8)
		if err := restoreDamaged(t, files, changed); err == nil {
			t.Errorf("byte %d of %d was changed: no error", at, len(image))
		}
	}
	if err := restoreDamaged(t, files, image); err != nil {
		t.Errorf("not changed: %v", err)
	}
}

func TestImageTruncated(t *testing.T) {
	image, _ := smallImage(t)
	files := smallFiles(t)
	for n := range image { // at every record's boundary as well
		if err := restoreDamaged(t, files, image[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("truncated to %d of %d bytes: %v", n, len(image), err)
		}
	}
	if err := restoreDamaged(t, files, append(bytes.Clone(image), 0)); err == nil || !strings.Contains(err.Error(), "data after its last record") {
		t.Errorf("extended: %v", err)
	}
}

func TestImageReordered(t *testing.T) {
	_, records := smallImage(t)
	files := smallFiles(t)
	refuse := func(what string, i, j int, records [][]byte) {
		if err := restoreDamaged(t, files, bytes.Join(records, nil)); err == nil {
			t.Errorf("record %d %s %d: no error", i, what, j)
		}
	}
	for i := range records {
		refuse("dropped", i, i, slices.Delete(slices.Clone(records), i, i+1))
		for j := range records {
			refuse("repeated before", i, j, slices.Insert(slices.Clone(records), j, records[i]))
			if i < j {
				swapped := slices.Clone(records)
				swapped[i], swapped[j] = records[j], records[i]
				refuse("swapped with", i, j, swapped)
			}
		}
	}
}

func TestImageOfOthers(t *testing.T) {
	image, _ := smallImage(t)
	first, second := empty(t, smallSize), empty(t, 4*pageSize)
	for name, test := range map[string]struct {
		key   Key
		files []*os.File
		want  string
	}{
		"the same":      {testKey, []*os.File{first, second}, ""},
		"other key":     {Key{1, 2, 4}, []*os.File{first, second}, "another key"},
		"fewer files":   {testKey, []*os.File{first}, "stored for memory of [20544 16384] bytes, want [20544]"},
		"more files":    {testKey, []*os.File{first, second, empty(t, 0)}, "want [20544 16384 0]"},
		"no files":      {testKey, nil, "want []"},
		"other order":   {testKey, []*os.File{second, first}, "want [16384 20544]"},
		"a larger file": {testKey, []*os.File{first, empty(t, 5*pageSize)}, "want [20544 20480]"},
	} {
		err := RestoreImage(t.Context(), bytes.NewReader(image), test.key, Files(test.files...))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestImageMost(t *testing.T) {
	files := smallFiles(t)
	for most, want := range map[uint64]bool{0: false, pageSize: false, smallMemory - 1: false, smallMemory: true, 1 << 63: true} {
		stored, err := StoreImage(t.Context(), io.Discard, testKey, Files(files...), most)
		if want != (err == nil) || err != nil && !strings.Contains(err.Error(), "which is the most allowed") {
			t.Errorf("at most %d: stored %+v, %v", most, stored, err)
		}
	}
}

// writeFunc is an image of which each write calls it.
type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(data []byte) (int, error) { return f(data) }

func TestImageCancelled(t *testing.T) {
	cause := errors.New("shutting down")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := StoreImage(cancelled, io.Discard, testKey, Files(smallFiles(t)...), size); !errors.Is(err, cause) {
		t.Errorf("store: %v", err)
	}

	file := empty(t, size)
	put(t, file, noise(8*imageBlock), 0)
	var image bytes.Buffer
	if _, err := StoreImage(t.Context(), &image, testKey, Files(file), size); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	written := 0
	_, err := StoreImage(ctx, writeFunc(func(data []byte) (int, error) {
		cancel(cause)
		written += len(data)
		return len(data), nil
	}), testKey, Files(file), size)
	if !errors.Is(err, cause) || written > 2*imageBlock {
		t.Errorf("store, cancelled at the first write: %v after %d bytes", err, written)
	}

	emptied(t, []*os.File{file})
	if err := RestoreImage(cancelled, &image, testKey, Files(file)); !errors.Is(err, cause) {
		t.Errorf("restore: %v", err)
	}
	if used, _ := allocated(t, file); used != 0 {
		t.Errorf("restore, cancelled: %d bytes restored", used)
	}
}

func TestImageDiskFull(t *testing.T) {
	file := empty(t, size)
	put(t, file, noise(2*imageBlock), 0)
	for space := 0; space < 2*imageBlock; space += imageBlock / 8 {
		left := space
		_, err := StoreImage(t.Context(), writeFunc(func(data []byte) (int, error) {
			if len(data) > left {
				return left, unix.ENOSPC
			}
			left -= len(data)
			return len(data), nil
		}), testKey, Files(file), size)
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("space for %d bytes: %v", space, err)
		}
	}
	image, _ := smallImage(t)
	broken := io.MultiReader(bytes.NewReader(image[:len(image)/2]), iotest.ErrReader(unix.EIO))
	if err := RestoreImage(t.Context(), broken, testKey, Files(smallFiles(t)...)); !errors.Is(err, unix.EIO) {
		t.Errorf("a disk that fails: %v", err)
	}
}

// A file that grows while it is stored would give an image that no file fits.
func TestImageOfGrowingFile(t *testing.T) {
	file := empty(t, size)
	put(t, file, noise(2*imageBlock), 0)
	_, err := StoreImage(t.Context(), writeFunc(func(data []byte) (int, error) {
		_, err := file.WriteAt([]byte("more"), 2*size)
		return len(data), err
	}), testKey, Files(file), size)
	if err == nil || !strings.Contains(err.Error(), "its size was 67108864") {
		t.Errorf("store: %v", err)
	}
}

func TestImageOfClosedFile(t *testing.T) {
	file := empty(t, size)
	_ = file.Close()
	if _, err := StoreImage(t.Context(), io.Discard, testKey, Files(file), size); !errors.Is(err, os.ErrClosed) {
		t.Errorf("store: %v", err)
	}
	if err := RestoreImage(t.Context(), bytes.NewReader(nil), testKey, Files(file)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("restore: %v", err)
	}
	if err := discard(file); !errors.Is(err, os.ErrClosed) {
		t.Errorf("discard: %v", err)
	}
}

// Discard says why it cannot: a sealed file keeps its data.
func TestDiscardSealed(t *testing.T) {
	from := sparse(t)
	sum, err := Sum(from)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := Blank("memory", size)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sealed.Close() }()
	if err := Fill(sealed, from, sum); err != nil {
		t.Fatal(err)
	}
	if err := discard(sealed); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "discard memory: punch a hole of 67108864 bytes") {
		t.Errorf("discard: %v", err)
	}
}
