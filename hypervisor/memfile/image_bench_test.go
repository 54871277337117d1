package memfile

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"testing"
)

// benchMemory is the data of the benchmarks' memory file of 1 GiB.
const benchMemory = 128 << 20

// halfCompressible returns memory as a guest has it, scattered in the file: of
// each MiB about a third is text, a third random (what is packed or encrypted),
// and a third small numbers and zeros, as in tables and heaps.
func halfCompressible(b *testing.B) *os.File {
	b.Helper()
	file := empty(b, 1<<30)
	numbers := rand.New(rand.NewPCG(1, 2))
	random := rand.NewChaCha8([32]byte{2})
	words := bytes.Fields([]byte("the machine stopped and its memory file kept struct page 0x7f00 GET /index.html return err \x48\x89\xe5 \xe8\x10\x00"))
	block := make([]byte, 1<<20)
	for at := int64(0); at < benchMemory; at += int64(len(block)) {
		for page := 0; page < len(block); page += pageSize {
			fillPage(block[page:page+pageSize], numbers, random, words)
		}
		if _, err := file.WriteAt(block, at*(1<<30/benchMemory)); err != nil {
			b.Fatal(err)
		}
	}
	return file
}

func fillPage(page []byte, numbers *rand.Rand, random *rand.ChaCha8, words [][]byte) {
	switch numbers.IntN(3) {
	case 0:
		for n := 0; n < len(page); {
			n += copy(page[n:], words[numbers.IntN(len(words))])
			n += copy(page[n:], " ")
		}
	case 1:
		_, _ = random.Read(page)
	default:
		clear(page)
		for n := 0; n < len(page); n += 8 {
			page[n] = byte(numbers.IntN(200))
			page[n+1] = byte(numbers.IntN(3))
		}
	}
}

func BenchmarkStoreImage(b *testing.B) {
	files := []*os.File{halfCompressible(b)}
	b.SetBytes(benchMemory)
	b.ReportAllocs()
	var stored Stored
	for b.Loop() {
		var err error
		if stored, err = StoreImage(b.Context(), io.Discard, Key{1}, Files(files...), benchMemory); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(stored.Memory)/float64(stored.Image), "memory/image")
}

func BenchmarkRestoreImage(b *testing.B) {
	files := []*os.File{halfCompressible(b)}
	var image bytes.Buffer
	if _, err := StoreImage(b.Context(), &image, Key{1}, Files(files...), benchMemory); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchMemory)
	b.ReportAllocs()
	for b.Loop() {
		if err := discard(files[0]); err != nil {
			b.Fatal(err)
		}
		if err := RestoreImage(b.Context(), bytes.NewReader(image.Bytes()), Key{1}, Files(files...)); err != nil {
			b.Fatal(err)
		}
	}
}
