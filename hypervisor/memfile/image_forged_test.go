package memfile

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

// forged is an image whose records are authentic, whatever they say.
type forged struct {
	t      testing.TB
	image  []byte
	cipher recordCipher
}

// forge begins an image for memory of these sizes.
func forge(t testing.TB, sizes ...uint64) *forged {
	t.Helper()
	c, err := newRecordCipher(testKey)
	if err != nil {
		t.Fatal(err)
	}
	f := &forged{t: t, image: []byte(imageMagic), cipher: c}
	var start []byte
	for _, size := range sizes {
		start = binary.LittleEndian.AppendUint64(start, size)
	}
	return f.add(recordHeader{kind: recordStart}, start)
}

func (f *forged) add(h recordHeader, data []byte) *forged {
	h.data = uint32(len(data))
	header := h.append(nil)
	f.image = f.cipher.Seal(append(f.image, header...), f.cipher.next(), data, header)
	return f
}

func (f *forged) end(records, memory uint64) *forged {
	totals := binary.LittleEndian.AppendUint64(nil, records)
	return f.add(recordHeader{kind: recordEnd}, binary.LittleEndian.AppendUint64(totals, memory))
}

// What an authentic record says is checked as well: a mistake in StoreImage must
// not write to other memory or end the process.
func TestImageForged(t *testing.T) {
	block := recordHeader{kind: recordPlain, memory: pageSize}
	packed := recordHeader{kind: recordS2, memory: pageSize}
	with := func(h recordHeader, change func(*recordHeader)) recordHeader { change(&h); return h }
	small := func() *forged { return forge(t, 2*pageSize) }
	zip := s2.Encode(nil, text)

	for name, test := range map[string]struct {
		image *forged
		want  string
	}{
		"good":               {small().add(block, text).add(packed, zip).end(3, 2*pageSize), ""},
		"other part":         {small().add(with(block, func(h *recordHeader) { h.part = 1 }), text), "for part 1, want one of 1"},
		"last file":          {small().add(with(block, func(h *recordHeader) { h.part = 1<<32 - 1 }), text), "want one of 1"},
		"beyond the end":     {small().add(with(block, func(h *recordHeader) { h.offset = pageSize + 1 }), text), "4096 bytes at 4097, the memory has 8192"},
		"far away":           {small().add(with(block, func(h *recordHeader) { h.offset = 1<<64 - 1 }), text), "the memory has 8192"},
		"less than it says":  {small().add(block, text[1:]), "has 4095 bytes of memory, want 4096"},
		"more than it says":  {small().add(with(packed, func(h *recordHeader) { h.memory-- }), zip), "has 4096 bytes of memory, want 4095"},
		"too large":          {small().add(with(block, func(h *recordHeader) { h.memory = imageBlock + 1 }), text), "want at most 262144"},
		"a bomb":             {small().add(packed, binary.AppendUvarint(nil, 1<<32-1)), "has 4294967295 bytes of memory"},
		"no length":          {small().add(packed, nil), "corrupt"},
		"not compressed":     {small().add(packed, append(binary.AppendUvarint(nil, pageSize), text[:99]...)), "corrupt"},
		"unknown kind":       {small().add(with(block, func(h *recordHeader) { h.kind = 77 }), text), "of kind 77"},
		"second start":       {small().add(recordHeader{kind: recordStart}, nil), "of kind 1"},
		"wrong record total": {small().add(block, text).end(1, pageSize), "totals are [1 4096], want [2 4096]"},
		"wrong memory total": {small().end(1, pageSize), "totals are [1 4096], want [1 0]"},
		"no totals":          {small().add(recordHeader{kind: recordEnd}, nil), "totals are []"},
		"goes on":            {small().end(1, 0).add(block, text), "data after its last record"},
	} {
		t.Run(name, func(t *testing.T) {
			file := empty(t, 2*pageSize)
			err := RestoreImage(t.Context(), bytes.NewReader(test.image.image), testKey, Files(file))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if test.want == "" && !bytes.Equal(content(t, file), append(bytes.Clone(text), make([]byte, pageSize)...)) {
				t.Error("the memory differs")
			}
		})
	}
}

// heap returns how many bytes do allocates.
func heap(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// maxHeap is what an image of any size may take, with -race, with which s2 uses
// its tables of 64 KiB again only sometimes.
const maxHeap = 4 << 20

func TestImageHeap(t *testing.T) {
	files := []*os.File{empty(t, size), empty(t, size)}
	put(t, files[0], noise(8<<20), 0) // stored as it is
	put(t, files[1], bytes.Repeat(text, 8<<20/len(text)), 0)
	image := bytes.NewBuffer(make([]byte, 0, 20<<20))
	used := heap(func() {
		if _, err := StoreImage(t.Context(), image, testKey, Files(files...), size); err != nil {
			t.Error(err)
		}
	})
	if used > maxHeap {
		t.Errorf("store allocated %d bytes, want at most %d", used, maxHeap)
	}
	emptied(t, files)
	used = heap(func() {
		if err := RestoreImage(t.Context(), image, testKey, Files(files...)); err != nil {
			t.Error(err)
		}
	})
	if used > maxHeap {
		t.Errorf("restore allocated %d bytes, want at most %d", used, maxHeap)
	}
}

// forgeAny makes an image of data: headers, each with the bytes that follow it
// up to the length that it says.
func forgeAny(t testing.TB, data []byte) []byte {
	image := forge(t, smallSize, 4*pageSize)
	for len(data) >= headerSize {
		h := recordHeader{
			kind:   data[0],
			part:   binary.LittleEndian.Uint32(data[1:]),
			offset: binary.LittleEndian.Uint64(data[5:]),
			memory: binary.LittleEndian.Uint32(data[13:]),
		}
		n := min(uint64(binary.LittleEndian.Uint32(data[17:])), uint64(len(data)-headerSize))
		image.add(h, data[headerSize:][:n])
		data = data[headerSize+n:]
	}
	return append(image.image, data...)
}

func FuzzRestoreImage(f *testing.F) {
	image, _ := smallImage(f)
	f.Add(image, false)
	f.Add([]byte(imageMagic), false)
	zip := s2.Encode(nil, text)
	packed := recordHeader{kind: recordS2, part: 1, offset: pageSize, memory: pageSize, data: uint32(len(zip))}
	end := recordHeader{kind: recordEnd, data: 16}
	totals := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 2), pageSize)
	whole := append(end.append(append(packed.append(nil), zip...)), totals...)
	f.Add(whole, true)
	files := smallFiles(f)
	if err := RestoreImage(f.Context(), bytes.NewReader(forgeAny(f, whole)), testKey, Files(files...)); err != nil {
		f.Fatalf("the seed is not an image: %v", err)
	}

	// Authentic is that each record is encrypted with the key, so that the checks
	// behind the decryption are reached.
	f.Fuzz(func(t *testing.T, data []byte, authentic bool) {
		if authentic {
			data = forgeAny(t, data)
		}
		emptied(t, files)
		used := heap(func() { _ = RestoreImage(t.Context(), bytes.NewReader(data), testKey, Files(files...)) })
		if used > maxHeap {
			t.Errorf("restoring %d bytes allocated %d, want at most %d", len(data), used, maxHeap)
		}
		for i, want := range []int64{smallSize, 4 * pageSize} {
			if _, size := allocated(t, files[i]); size != want {
				t.Errorf("file %d has %d bytes, want %d", i, size, want)
			}
		}
	})
}
