package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// heard is a connection that has received that, and keeps what is sent.
type heard struct {
	Conn
	io.Reader
	sent   []byte
	closed int
}

func (h *heard) Read(p []byte) (int, error) { return h.Reader.Read(p) }
func (h *heard) Close() error               { h.closed++; return nil }
func (h *heard) Write(p []byte) (int, error) {
	h.sent = append(h.sent, p...)
	return len(p), nil
}

// slotFile is an output's file.
type slotFile struct {
	io.ReaderAt
	closed int
}

func (*slotFile) GuestPath() string { return "/file" }
func (f *slotFile) Close() error    { f.closed++; return nil }

// slots returns a file that has these data in its slots.
func slots(data ...string) *slotFile {
	file := make([]byte, 0, api.OutputSlots*api.OutputSlotSize)
	for i, d := range data {
		file = append(file[:i*api.OutputSlotSize], binary.BigEndian.AppendUint32(nil, uint32(len(d)))...)
		file = append(file, d...)
		file = append(file, make([]byte, (i+1)*api.OutputSlotSize-len(file))...)
	}
	return &slotFile{ReaderAt: bytes.NewReader(file)}
}

func inline(text string) string {
	return string(append(binary.BigEndian.AppendUint32([]byte{api.FrameInline}, uint32(len(text))), text...))
}

const slot = string(rune(api.FrameSlot))

// The output is what the frames have, in their order, however it is read; each slot is freed
// once, when it has been read.
func TestFrames(t *testing.T) {
	large := strings.Repeat("large ", 1000)
	full := strings.Repeat("x", api.OutputSlotData)
	stream := inline("one ") + inline(large) + slot + slot + inline("two") + slot
	file := slots(full, "second", "")
	want := "one " + large + full + "second" + "two" + full
	for name, read := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "bytes": iotest.OneByteReader,
	} {
		conn := &heard{Reader: read(strings.NewReader(stream))}
		f := newFramedConn(conn, file)
		got, err := io.ReadAll(read(f))
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(want))
		}
		if len(conn.sent) != 3 {
			t.Errorf("%s: %d slots were freed, want 3", name, len(conn.sent))
		}
	}
}

// A slot is not freed before its last byte was read.
func TestSlotIsFreedAtItsEnd(t *testing.T) {
	conn := &heard{Reader: strings.NewReader(slot)}
	f := newFramedConn(conn, slots("ab"))
	for i, want := range []int{0, 1} {
		if n, err := f.Read(make([]byte, 1)); n != 1 || err != nil || len(conn.sent) != want {
			t.Errorf("byte %d: %d, %v; %d slots were freed, want %d", i, n, err, len(conn.sent), want)
		}
	}
}

// A connection that ends within a frame has the frame's begin.
func TestCutFrame(t *testing.T) {
	whole := inline("hello")
	for n := range len(whole) {
		got, err := io.ReadAll(newFramedConn(&heard{Reader: strings.NewReader(whole[:n])}, slots()))
		if want := whole[min(n, api.InlineHeader):n]; err != nil || string(got) != want {
			t.Errorf("%d bytes: %q, %v, want %q", n, got, err, want)
		}
	}
}

// What no agent sends is an error, and nothing of it is output.
func TestFramesMalformed(t *testing.T) {
	long := &slotFile{ReaderAt: bytes.NewReader([]byte{0, 0x10, 0, 0, 'x'})}
	for name, c := range map[string]struct {
		stream string
		file   *slotFile
		want   string
	}{
		"kind":            {"\x02", slots(), "kind 2"},
		"empty frame":     {inline(""), slots(), "0 bytes"},
		"long frame":      {string([]byte{0, 0, 0x20, 0, 0}), slots(), "2097152 bytes"},
		"empty slot":      {slot, slots(""), "0 bytes"},
		"long slot":       {slot, long, "1048576 bytes"},
		"empty file":      {slot, slots(), "how much output"},
		"shortened file":  {slot, &slotFile{ReaderAt: bytes.NewReader([]byte{0, 0, 0, 2, 'x'})}, "cut"},
		"after an output": {inline("ok") + "\xff", slots(), "kind 255"},
	} {
		got, err := io.ReadAll(newFramedConn(&heard{Reader: strings.NewReader(c.stream)}, c.file))
		if !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if strings.TrimSuffix(strings.TrimPrefix(string(got), "ok"), "x") != "" {
			t.Errorf("%s: output %q", name, got)
		}
	}
}

// The connection and the file are closed together.
func TestFramedClose(t *testing.T) {
	conn, file := &heard{Reader: strings.NewReader("")}, slots()
	f := newFramedConn(conn, file)
	if err := f.Close(); err != nil || conn.closed != 1 || file.closed != 1 {
		t.Errorf("%v, closed %d and %d times", err, conn.closed, file.closed)
	}
}

// gone is a file that was closed.
type gone struct{}

func (gone) ReadAt([]byte, int64) (int, error) { return 0, os.ErrClosed }

// A read that Close ends loses no output: it was given up.
func TestReadOfClosedFile(t *testing.T) {
	f := newFramedConn(&heard{Reader: strings.NewReader(slot)}, &slotFile{ReaderAt: gone{}})
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) || errdefs.IsDataLoss(err) {
		t.Error(err)
	}
	f.left, f.inSlot = 1, true
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) || errdefs.IsDataLoss(err) {
		t.Error(err)
	}
}

// Whatever a guest sends, and has in its file, is bounded by what it has sent.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(inline("hello")+slot+slot+inline("x")), []byte("\x00\x00\x00\x03abc"))
	f.Add([]byte(slot), []byte("\x00\x0f\xf0\x00"))
	f.Add([]byte("\x00\xff\xff\xff\xff"), []byte{})
	f.Fuzz(func(t *testing.T, stream, file []byte) {
		conn := &heard{Reader: bytes.NewReader(stream)}
		got, _ := io.ReadAll(newFramedConn(conn, &slotFile{ReaderAt: bytes.NewReader(file)}))
		if most := len(stream) * (1 + len(file)); len(got) > most {
			t.Errorf("%d bytes of output", len(got))
		}
		if len(conn.sent) > bytes.Count(stream, []byte(slot)) {
			t.Errorf("%d slots were freed", len(conn.sent))
		}
	})
}
