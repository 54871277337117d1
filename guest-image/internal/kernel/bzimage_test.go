package kernel

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pierrec/lz4/v4"

	"github.com/katabox/katabox/guest-image/internal/decompress"
	"github.com/katabox/katabox/guest-image/internal/elftest"
)

// testKernel has zeros at the end of its data, and a note.
func testKernel() []byte {
	return elftest.Kernel(
		elftest.Segment{Type: elf.PT_LOAD, Paddr: 0x1000000, Data: []byte(strings.Repeat("code", 2000))},
		elftest.Segment{Type: elf.PT_LOAD, Paddr: 0x2000000, Data: append([]byte("data"), make([]byte, 9000)...), Memsz: 20000},
		elftest.Segment{Type: elf.PT_LOAD, Paddr: 0x3000000, Data: make([]byte, 5000)},
		elftest.Segment{Type: elf.PT_NOTE, Paddr: 0x1000100, Data: append(
			elftest.Note("GNU", 3, []byte("build")), elftest.PVHNote(0x1000850)...)},
	)
}

func packLZ4(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	if err := w.Apply(lz4.LegacyOption(true)); err != nil {
		t.Fatal(err)
	}
	return packed(t, &out, w, data)
}

func packGzip(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	return packed(t, &out, gzip.NewWriter(&out), data)
}

func packed(t testing.TB, out *bytes.Buffer, w io.WriteCloser, data []byte) []byte {
	t.Helper()
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpack(t *testing.T) {
	vmlinux := testKernel()
	// Relocatable kernels have their relocations after the ELF.
	withRelocs := append(bytes.Clone(vmlinux), 1, 2, 3, 4)
	for _, tc := range []struct {
		name   string
		image  elftest.BzImage
		format decompress.Format
	}{
		{"lz4", elftest.BzImage{SetupSects: 30, Payload: elftest.WithLength(packLZ4(t, withRelocs), len(withRelocs))}, decompress.LZ4},
		{"gzip, whose length is its own", elftest.BzImage{SetupSects: 1, Payload: packGzip(t, withRelocs)}, decompress.Gzip},
		{"no setup sectors are four", elftest.BzImage{Payload: packGzip(t, vmlinux)}, decompress.Gzip},
		{"not packed", elftest.BzImage{SetupSects: 4, Payload: vmlinux}, decompress.None},
	} {
		t.Run(tc.name, func(t *testing.T) {
			img, err := Unpack(t.Context(), tc.image.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			want := &Image{Compression: tc.format, PVHEntry: 0x1000850}
			got := &Image{Compression: img.Compression, PVHEntry: img.PVHEntry}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			checkCompact(t, vmlinux, img.ELF)
		})
	}
}

func TestUnpackErrors(t *testing.T) {
	vmlinux := testKernel()
	lz := packLZ4(t, vmlinux)
	for _, tc := range []struct {
		name string
		bz   []byte
		want string
	}{
		{"empty", nil, ErrNotBzImage.Error()},
		{"ELF", vmlinux, ErrNotBzImage.Error()},
		{"old protocol", elftest.BzImage{Protocol: 0x0207, Payload: lz}.Bytes(), ErrNotBzImage.Error()},
		{"payload too long", elftest.BzImage{Payload: lz, PayloadLength: uint32(len(lz) + 1)}.Bytes(), "outside"},
		{"payload far too long", elftest.BzImage{Payload: lz, PayloadLength: 1<<32 - 1}.Bytes(), "outside"},
		{"longer than it says", elftest.BzImage{Payload: elftest.WithLength(lz, len(vmlinux)-1)}.Bytes(), "longer than"},
		{"shorter than it says", elftest.BzImage{Payload: elftest.WithLength(lz, len(vmlinux)+1)}.Bytes(), "its header says"},
		{"says it is huge", elftest.BzImage{Payload: elftest.WithLength(lz, maxKernel+1)}.Bytes(), "is above"},
		{"cut", elftest.BzImage{Payload: elftest.WithLength(lz[:len(lz)/2], len(vmlinux))}.Bytes(), "lz4"},
		{"LZO", elftest.BzImage{Payload: elftest.WithLength([]byte("\x89LZO1234"), 9)}.Bytes(), "unsupported"},
		{"LZMA", elftest.BzImage{Payload: elftest.WithLength([]byte("\x5d\x00\x00\x00\x80"), 9)}.Bytes(), "unsupported"},
		{"unknown", elftest.BzImage{Payload: elftest.WithLength([]byte("whatever"), 9)}.Bytes(), "unsupported"},
		{"not a kernel", elftest.BzImage{Payload: packGzip(t, []byte("hello, world"))}.Bytes(), "kernel ELF"},
		{"no x86", elftest.BzImage{Payload: packGzip(t, otherMachine(vmlinux))}.Bytes(), "not an x86-64 kernel"},
		{"segment cut", elftest.BzImage{Payload: packGzip(t, vmlinux[:len(vmlinux)-1])}.Bytes(), "outside of the file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Unpack(t.Context(), tc.bz)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestNotBzImageIsRecognised(t *testing.T) {
	if _, err := Unpack(t.Context(), []byte("MZ")); !errors.Is(err, ErrNotBzImage) {
		t.Errorf("error %v, want ErrNotBzImage", err)
	}
}

func otherMachine(vmlinux []byte) []byte {
	out := bytes.Clone(vmlinux)
	out[18] = byte(elf.EM_AARCH64) // e_machine
	return out
}

func FuzzUnpack(f *testing.F) {
	vmlinux := smallKernel()
	for _, payload := range [][]byte{
		elftest.WithLength(packLZ4(f, vmlinux), len(vmlinux)), packGzip(f, vmlinux), vmlinux,
	} {
		f.Add(elftest.BzImage{SetupSects: 1, Payload: payload}.Bytes())
	}
	f.Fuzz(func(t *testing.T, bz []byte) {
		if p, err := payload(bz); err != nil {
			return
		} else if format := decompress.Detect(p); format == decompress.XZ || format == decompress.Zstd {
			return // these formats need a program of the host
		}
		img, err := Unpack(t.Context(), bz)
		if err != nil {
			return
		}
		checkStable(t, img.ELF)
	})
}

func FuzzCompact(f *testing.F) {
	f.Add(smallKernel())
	f.Fuzz(func(t *testing.T, vmlinux []byte) {
		out, err := compact(vmlinux)
		if err != nil {
			return
		}
		checkStable(t, out)
		if _, err := pvhEntry(out); err != nil {
			t.Errorf("notes cannot be read: %v", err)
		}
	})
}

// smallKernel is a kernel that is cheap to fuzz.
func smallKernel() []byte {
	return elftest.Kernel(
		elftest.Segment{Type: elf.PT_LOAD, Paddr: 0x1000000, Data: []byte("code\x00\x00"), Memsz: 9},
		elftest.Segment{Type: elf.PT_NOTE, Paddr: 0x1000000, Data: elftest.PVHNote(0x1000850)})
}

func checkStable(t *testing.T, compacted []byte) {
	t.Helper()
	again, err := compact(compacted)
	if err != nil || !bytes.Equal(again, compacted) {
		t.Errorf("a compact kernel is not stable: %v", err)
	}
}
