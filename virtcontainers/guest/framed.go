package guest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// OutputFile is a file of the host's that the guest has, too, by which large blocks of an
// output come (api.FrameSlot). Nothing in it is trusted.
type OutputFile interface {
	io.ReaderAt
	// Close removes it. It may be called again.
	io.Closer
	// GuestPath is where the guest has it.
	GuestPath() string
}

// frameBuffer is for the headers of frames, and for small frames as a whole.
const frameBuffer = 4 << 10

// framedConn is a connection whose bytes from the guest come in frames (api.FrameInline).
// It is read by one goroutine at a time. The error for a guest that sends anything else is
// errdefs.ErrDataLoss.
type framedConn struct {
	Conn
	file OutputFile
	in   *bufio.Reader

	left   int  // how many bytes of the frame were not read
	inSlot bool // they are in the file, at offset at
	at     int64
	slot   int64 // the next slot
}

func newFramedConn(conn Conn, file OutputFile) *framedConn {
	return &framedConn{Conn: conn, file: file, in: bufio.NewReaderSize(conn, frameBuffer)}
}

// Close implements net.Conn.
func (f *framedConn) Close() error { return errors.Join(f.Conn.Close(), f.file.Close()) }

// Read implements net.Conn. A guest that does not read which slots are free blocks it until
// Close, as one that sends nothing does.
func (f *framedConn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if f.left == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	p = p[:min(len(p), f.left)]
	if !f.inSlot {
		n, err = f.in.Read(p)
		f.left -= n
		return n, err
	}
	if n, err = f.file.ReadAt(p, f.at); n < len(p) {
		return n, fileError("the guest has cut its output's file", err)
	}
	f.at += int64(n)
	if f.left -= n; f.left == 0 {
		_, _ = f.Write([]byte{0}) // The next Read has the reason why it failed.
	}
	return n, nil
}

// next begins the next frame.
func (f *framedConn) next() error {
	kind, err := f.in.ReadByte()
	if err != nil {
		return err
	}
	switch kind {
	case api.FrameInline:
		return f.nextInline()
	case api.FrameSlot:
		return f.nextSlot()
	}
	return fmt.Errorf("the guest sent a frame of kind %d as output: %w", kind, errdefs.ErrDataLoss)
}

func (f *framedConn) nextInline() error {
	var length [api.InlineHeader - 1]byte
	_, err := io.ReadFull(f.in, length[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF // a cut frame without data
	}
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n == 0 || n > api.OutputSlotSize {
		return fmt.Errorf("the guest sent a frame of %d bytes as output, want 1 to %d: %w", n, api.OutputSlotSize, errdefs.ErrDataLoss)
	}
	f.left, f.inSlot = int(n), false
	return nil
}

// fileError is the error of a read of the file. One after Close is no fault of the guest's.
func fileError(what string, err error) error {
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	return fmt.Errorf("%s: %w: %w", what, err, errdefs.ErrDataLoss)
}

func (f *framedConn) nextSlot() error {
	begin := f.slot * api.OutputSlotSize
	var length [api.SlotHeader]byte
	if _, err := f.file.ReadAt(length[:], begin); err != nil {
		return fileError("read how much output the guest has put into its file", err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n == 0 || n > api.OutputSlotData {
		return fmt.Errorf("the guest has put %d bytes of output into a slot of its file, want 1 to %d: %w", n, api.OutputSlotData, errdefs.ErrDataLoss)
	}
	f.left, f.inSlot, f.at = int(n), true, begin+api.SlotHeader
	f.slot = (f.slot + 1) % api.OutputSlots
	return nil
}
