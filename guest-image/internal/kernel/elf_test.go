package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/guest-image/internal/elftest"
)

// loaded is a segment as a loader places it in memory.
type loaded struct {
	Type   elf.ProgType
	Flags  elf.ProgFlag
	Vaddr  uint64
	Paddr  uint64
	Memory []byte
}

func load(t *testing.T, kernel []byte) []loaded {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(kernel))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []loaded
	for _, p := range f.Progs {
		memory := make([]byte, p.Memsz)
		if _, err := io.ReadFull(p.Open(), memory[:p.Filesz]); err != nil {
			t.Fatal(err)
		}
		out = append(out, loaded{p.Type, p.Flags, p.Vaddr, p.Paddr, memory})
	}
	return out
}

// checkCompact compares what a loader sees of a kernel before and after.
func checkCompact(t *testing.T, before, after []byte) {
	t.Helper()
	if diff := cmp.Diff(load(t, before), load(t, after)); diff != "" {
		t.Errorf("memory differs: %s", diff)
	}
	f, err := elf.NewFile(bytes.NewReader(after))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, p := range f.Progs {
		if p.Off%pageSize != 0 {
			t.Errorf("segment %d lies at %#x, not on a page", i, p.Off)
		}
	}
}

func TestCompactDropsZeros(t *testing.T) {
	out, err := compact(testKernel())
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var sizes []uint64
	for _, p := range f.Progs {
		sizes = append(sizes, p.Filesz)
	}
	if diff := cmp.Diff([]uint64{8000, 4, 0, 44}, sizes); diff != "" {
		t.Errorf("sizes in the file: %s", diff)
	}
}

func TestXenEntry(t *testing.T) {
	other := elftest.Note("Xen", 6, []byte("linux\x00"))
	entry := elftest.PVHNote(0x1000850)
	for _, tc := range []struct {
		name  string
		notes []byte
		want  uint64
	}{
		{"alone", entry, 0x1000850},
		{"after others", append(other[:len(other):len(other)], entry...), 0x1000850},
		{"8 bytes", elftest.Note("Xen", 18, binary.LittleEndian.AppendUint64(nil, 1<<33)), 1 << 33},
		{"none", other, 0},
		{"another owner's", elftest.Note("GNU", 18, []byte{1, 0, 0, 0}), 0},
		{"odd size", elftest.Note("Xen", 18, []byte{1, 0}), 0},
		{"cut", entry[:len(entry)-1], 0},
		{"cut in the sizes", entry[:11], 0},
		{"sizes that overflow", append(bytes.Repeat([]byte{0xff}, 8), make([]byte, 20)...), 0},
		{"empty", nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := xenEntry(tc.notes); got != tc.want {
				t.Errorf("entry %#x, want %#x", got, tc.want)
			}
		})
	}
}

func TestKernelWithoutPVH(t *testing.T) {
	bz := elftest.BzImage{Payload: elftest.Kernel(elftest.Segment{Type: elf.PT_LOAD, Data: []byte("code")})}
	img, err := Unpack(t.Context(), bz.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if img.PVHEntry != 0 {
		t.Errorf("PVH entry %#x, want none", img.PVHEntry)
	}
}
