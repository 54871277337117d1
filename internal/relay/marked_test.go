package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/relay/relaytest"
)

// markedPair is a connection whose ends are marked, with what is below it.
func markedPair(t *testing.T) (a HalfCloser, b HalfCloser, below *net.UnixConn) {
	t.Helper()
	x, y := relaytest.Pair(t, waitTime)
	_ = x.SetDeadline(time.Now().Add(waitTime))
	return Mark(x), Mark(y), x
}

// What is written in any sizes is read in any, and then its end.
func TestMarkedBytes(t *testing.T) {
	sent := make([]byte, 3*maxBlock)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range sent {
		sent[i] = byte(random.Uint32())
	}
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"any":  func(r io.Reader) io.Reader { return r },
		"one":  iotest.OneByteReader,
		"half": iotest.HalfReader,
	} {
		t.Run(name, func(t *testing.T) {
			a, b, _ := markedPair(t)
			go func() {
				for rest := sent; len(rest) > 0; {
					n, err := a.Write(rest[:min(len(rest), 1+random.IntN(3*maxBlock))])
					if err != nil {
						t.Error(err)
						break
					}
					rest = rest[n:]
				}
				_ = a.CloseWrite()
			}()
			got, err := io.ReadAll(reader(b))
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("read %d bytes, %v, want %d", len(got), err, len(sent))
			}
			write(t, b, "late answer")
			_ = b.CloseWrite()
			relaytest.WantAll(t, a, "late answer")
			if n, err := b.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %d bytes, %v", n, err)
			}
		})
	}
}

// A connection that ends without the mark was reset, wherever that is.
func TestMarkedReset(t *testing.T) {
	for name, bytes := range map[string]string{
		"before a block":    "",
		"between blocks":    "\x00\x01a",
		"in a header":       "\x00",
		"in a later header": "\x00\x01a\x00",
		"in a block":        "\x00\x02a",
	} {
		_, b, below := markedPair(t)
		write(t, below, bytes)
		_ = below.Close()
		got, err := io.ReadAll(b)
		if !errors.Is(err, unix.ECONNRESET) || len(got) > 1 || len(got) == 1 && got[0] != 'a' {
			t.Errorf("%s: read %q, %v, want a reset", name, got, err)
		}
	}
}

// An empty write reports whether the peer is there, and is no end.
func TestMarkedEmptyWrite(t *testing.T) {
	a, b, _ := markedPair(t)
	if _, err := a.Write(nil); err != nil {
		t.Error(err)
	}
	write(t, a, "x")
	_ = a.CloseWrite()
	relaytest.WantAll(t, b, "x")
	c, d, _ := markedPair(t)
	_ = d.Close()
	if _, err := c.Write(nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the peer is gone: %v", err)
	}
}

// A reader that is late by a deadline continues where it was.
func TestMarkedDeadline(t *testing.T) {
	_, b, below := markedPair(t)
	buf := make([]byte, 10)
	for _, part := range []string{"\x00", "\x03a", "b", "c\x00", "\x00"} {
		write(t, below, part)
		_ = b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		for {
			n, err := b.Read(buf)
			if err != nil {
				break
			}
			if strings.Trim(string(buf[:n]), "abc") != "" {
				t.Errorf("read %q", buf[:n])
			}
		}
	}
	_ = b.SetReadDeadline(time.Now().Add(waitTime))
	relaytest.WantAll(t, b, "")
}

// FuzzMarked reads what a peer may send, in the sizes that it chooses. What comes out
// must be the blocks, and an end of file only at their mark.
func FuzzMarked(f *testing.F) {
	f.Add([]byte("\x00\x02ab\x00\x01c\x00\x00"), uint8(3), uint8(2))
	f.Add([]byte("\x00\x00after the end"), uint8(1), uint8(200))
	f.Add([]byte("\xff\xffx"), uint8(2), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, step, room uint8) {
		if len(data) > 4096 {
			return
		}
		source := pieces{bytes.NewReader(data), int(step) + 1}
		want, ended := blocks(data)
		got, err := io.ReadAll(pieces{Mark(conn{Reader: source}), int(room) + 1})
		if !bytes.Equal(got, want) || ended != (err == nil) || err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Fatalf("%q: read %q, %v, want %q, ended %v", data, got, err, want, ended)
		}
	})
}

// blocks returns the bytes of a stream of blocks, and whether their end is marked.
func blocks(data []byte) (joined []byte, ended bool) {
	for len(data) >= markSize {
		n := int(binary.BigEndian.Uint16(data))
		if n == 0 {
			return joined, true
		}
		data = data[markSize:]
		n = min(n, len(data))
		joined, data = append(joined, data[:n]...), data[n:]
	}
	return joined, false
}

// pieces reads at most so many bytes at once.
type pieces struct {
	io.Reader
	most int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.most)]) }

// conn is a connection that only reads.
type conn struct {
	HalfCloser
	io.Reader
}

func (c conn) Read(b []byte) (int, error) { return c.Reader.Read(b) }
