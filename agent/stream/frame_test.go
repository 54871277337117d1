package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// outputFile makes a file that may be written to without the page cache, as one of a
// share may, with any alignment.
func outputFile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "output") //nolint:usetesting // t.TempDir is on another file system
	if err != nil {
		t.Skip("needs a tmpfs:", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "file")
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EINVAL) {
		t.Skip("needs a tmpfs of Linux 6.6 or later, with O_DIRECT")
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	return path
}

// frames is the host's end of an output that comes in frames.
type frames struct {
	conn net.Conn
	path string
	// slow is for how long a slot is kept.
	slow  time.Duration
	slots int
}

// rebindFramed is rebind for an output with a file.
func rebindFramed(t *testing.T, s *Stdio, path string) (*frames, uint64) {
	t.Helper()
	place, err := s.Reserve(stdout)
	if err != nil {
		t.Fatal(err)
	}
	if !place.Frame(path) {
		t.Fatal("the output has no frames")
	}
	host, guest := socketPair(t)
	place.Attach(guest, nil)
	return &frames{conn: host, path: path}, place.Sent
}

// readAll reads to the end of the connection, which may cut the last frame.
func (f *frames) readAll() (got []byte, err error) {
	for {
		data, err := f.next()
		got = append(got, data...)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
				err = nil // The last: a byte for a slot came after the agent's end.
			}
			return got, err
		}
	}
}

func (f *frames) next() ([]byte, error) {
	var kind [1]byte
	if _, err := io.ReadFull(f.conn, kind[:]); err != nil {
		return nil, err
	}
	var length [4]byte
	if kind[0] == api.FrameInline {
		if _, err := io.ReadFull(f.conn, length[:]); err != nil {
			return nil, err
		}
		data := make([]byte, binary.BigEndian.Uint32(length[:]))
		n, err := io.ReadFull(f.conn, data)
		return data[:n], err
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	at := int64(f.slots % api.OutputSlots * api.OutputSlotSize)
	f.slots++
	if _, err := file.ReadAt(length[:], at); err != nil {
		return nil, err
	}
	data := make([]byte, binary.BigEndian.Uint32(length[:]))
	time.Sleep(f.slow)
	if _, err := file.ReadAt(data, at+api.SlotHeader); err != nil {
		return nil, err
	}
	_, _ = f.conn.Write([]byte{0}) // A connection that ends needs no free slot.
	return data, nil
}

// What comes in frames is what the process writes, once and in its order, however often
// counts and parks stop the copying.
func TestFramesAtAnyTime(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	data := pattern(32 << 20)
	go func() {
		_, _ = s.Child().Stdout.Write(data)
		s.Child().Close()
	}()
	slots, parks := 0, 0
	var got []byte
	for deadline := time.Now().Add(time.Minute); len(got) < len(data); parks++ {
		out, before := rebindFramed(t, s, outputFile(t))
		if before != uint64(len(got)) {
			t.Fatalf("sent %d, and the host read %d", before, len(got))
		}
		out.slow = time.Duration(rand.IntN(3)) * time.Millisecond
		type result struct {
			data []byte
			err  error
		}
		read := make(chan result, 1)
		go func() {
			data, err := out.readAll()
			read <- result{data, err}
		}()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		if o, _ := s.Totals(); o < before || o > uint64(len(data)) {
			t.Errorf("total %d after %d", o, before)
		}
		park(t, s, 0)
		r := <-read
		if r.err != nil {
			t.Fatal(r.err)
		}
		got = append(got, r.data...)
		slots += out.slots
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d bytes in a minute", len(got), len(data))
		}
	}
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes, or others, of %d", len(got), len(data))
	}
	if slots == 0 {
		t.Error("no slot was used")
	}
	t.Logf("%d slots, %d parks", slots, parks)
}

// A file that is missing, or has no room, is not used: all comes over the connection.
func TestFramesWithoutAFile(t *testing.T) {
	for name, path := range map[string]string{"missing": "/nowhere/file", "full": "/dev/full"} {
		t.Run(name, func(t *testing.T) {
			s := newStdio(t, Request{Stdout: true})
			out, _ := rebindFramed(t, s, path)
			data := pattern(4 << 20)
			go func() {
				_, _ = s.Child().Stdout.Write(data)
				s.Child().Close()
			}()
			got, err := out.readAll()
			if err != nil || !bytes.Equal(got, data) || out.slots > 0 {
				t.Errorf("%d bytes of %d, %d slots, %v", len(got), len(data), out.slots, err)
			}
		})
	}
}

// The room is given back when there is no more output for a while.
func TestFileIsEmptiedAfterABurst(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	path := outputFile(t)
	out, _ := rebindFramed(t, s, path)
	go func() { _, _ = s.Child().Stdout.Write(make([]byte, 8<<20)) }()
	for n := 0; n < 8<<20; {
		data, err := out.next()
		if err != nil {
			t.Fatal(err)
		}
		n += len(data)
	}
	if out.slots == 0 {
		t.Error("no slot was used")
	}
	waitUntil(t, "an empty file", func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() == 0
	})
}

// Inputs and terminals have no frames.
func TestNoFrames(t *testing.T) {
	s := newStdio(t, Request{Stdin: true, Stdout: true, Terminal: true})
	for _, stream := range []api.Stream{stdin, stdout} {
		place, err := s.Reserve(stream)
		if err != nil {
			t.Fatal(err)
		}
		if place.Frame("/file") {
			t.Errorf("%v has frames", stream)
		}
	}
}
