package api

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestDatagrams(t *testing.T) {
	var stream bytes.Buffer
	sent := []Datagram{{1, []byte("query")}, {1 << 31, bytes.Repeat([]byte{0xff}, MaxDatagram)}}
	for _, d := range sent {
		if err := WriteDatagram(&stream, d); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range sent {
		got, err := ReadDatagram(&stream)
		if err != nil || got.ID != want.ID || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("read %d with %d bytes, %v; want %d with %d", got.ID, len(got.Data), err, want.ID, len(want.Data))
		}
	}
	if _, err := ReadDatagram(&stream); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	for _, size := range []int{0, MaxDatagram + 1} {
		if err := WriteDatagram(&stream, Datagram{1, make([]byte, size)}); err == nil || stream.Len() > 0 {
			t.Errorf("wrote a datagram of %d bytes: %v", size, err)
		}
	}
}

func FuzzReadDatagram(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x05query"))
	f.Add([]byte("\x00\x00\x00\x01\x10\x01"))
	f.Add([]byte("\x00\x00\x00\x01\x00\x00"))
	f.Add([]byte(strings.Repeat("\xff", 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		d, err := ReadDatagram(r)
		if err != nil {
			return
		}
		if len(d.Data) == 0 || len(d.Data) > MaxDatagram || r.Len() != len(data)-datagramHeader-len(d.Data) {
			t.Errorf("%d bytes of %d, %d left", len(d.Data), len(data), r.Len())
		}
	})
}
