package vhostuser

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeHeader(t *testing.T) {
	raw := func(req, flags, size uint32) []byte {
		p := binary.LittleEndian.AppendUint32(nil, req)
		p = binary.LittleEndian.AppendUint32(p, flags)
		return binary.LittleEndian.AppendUint32(p, size)
	}
	for _, tc := range []struct {
		name string
		raw  []byte
		want header
		bad  bool
	}{
		{name: "plain", raw: raw(5, 1, 40), want: header{reqSetMemTable, 1, 40}},
		{name: "reply wanted", raw: raw(2, 9, 8), want: header{reqSetFeatures, 9, 8}},
		{name: "longest", raw: raw(24, 1, maxPayload), want: header{reqGetConfig, 1, maxPayload}},
		{name: "too long", raw: raw(24, 1, maxPayload+1), bad: true},
		{name: "version 2", raw: raw(1, 2, 0), bad: true},
		{name: "a reply", raw: raw(1, 5, 0), bad: true},
		{name: "short", raw: raw(1, 1, 0)[:11], bad: true},
	} {
		got, err := decodeHeader(tc.raw)
		if errors.Is(err, errMalformed) != tc.bad || got != tc.want {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
}

func TestConfigReply(t *testing.T) {
	request := func(off, size uint32, space int) []byte {
		p := binary.LittleEndian.AppendUint32(nil, off)
		p = binary.LittleEndian.AppendUint32(p, size)
		p = binary.LittleEndian.AppendUint32(p, 0)
		return append(p, make([]byte, space)...)
	}
	config := []byte{1, 2, 3, 4}
	for _, tc := range []struct {
		name    string
		request []byte
		want    []byte
		bad     bool
	}{
		{name: "all", request: request(0, 4, 4), want: config},
		{name: "part", request: request(1, 2, 2), want: config[1:3]},
		{name: "over the end", request: request(2, 4, 4), want: []byte{3, 4, 0, 0}},
		{name: "beyond", request: request(200, 2, 2), want: []byte{0, 0}},
		{name: "wraps", request: request(1<<32-1, 2, 2), bad: true},
		{name: "too long", request: request(0, 257, 257), bad: true},
		{name: "size and payload differ", request: request(0, 4, 3), bad: true},
		{name: "short", request: request(0, 0, 0)[:11], bad: true},
	} {
		m := &message{payload: tc.request}
		got, err := m.configReply(config)
		if errors.Is(err, errMalformed) != tc.bad {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if !tc.bad && (!bytes.Equal(got[:configHdrLen], tc.request[:configHdrLen]) || !bytes.Equal(got[configHdrLen:], tc.want)) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// FuzzDecode feeds the decoders: what they accept is within its bounds, and of
// the size that was sent.
func FuzzDecode(f *testing.F) {
	f.Add(binary.LittleEndian.AppendUint64(nil, 1), 1)
	f.Add(make([]byte, 40), 0)
	f.Add(append([]byte{2}, make([]byte, 71)...), 2)
	f.Fuzz(func(t *testing.T, payload []byte, fds int) {
		if fds < 0 || fds > maxFDs || len(payload) > maxPayload {
			return
		}
		m := &message{payload: payload, fds: make([]int, fds)}
		if regions, err := m.memTable(); err == nil {
			if len(regions) == 0 || len(regions) != fds || len(payload) < 8+regionLen*len(regions) {
				t.Errorf("%d regions of %d bytes with %d descriptors", len(regions), len(payload), fds)
			}
		}
		if reply, err := m.configReply([]byte{1, 2, 3}); err == nil && len(reply) != len(payload) {
			t.Errorf("reply of %d bytes to %d", len(reply), len(payload))
		}
		if s, err := m.vringState(); err == nil {
			if diff := cmp.Diff(payload, s.encode()); diff != "" {
				t.Error(diff)
			}
		}
		if i, hasFD, err := m.vringFile(); err == nil && (i > 255 || hasFD != (fds == 1)) {
			t.Errorf("queue %d with %d descriptors", i, fds)
		}
		if _, _, err := m.vringAddr(); (err == nil) != (len(payload) == 40) {
			t.Errorf("address of %d bytes: %v", len(payload), err)
		}
		if _, err := m.deviceState(); err == nil && (len(payload) != 8 || fds != 1) {
			t.Errorf("transfer of state, of %d bytes with %d descriptors", len(payload), fds)
		}
	})
}
