package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes and flags of a message (vhost-user.rst, "Message Specification").
const (
	headerLen = 12

	flagVersionMask = 0x3
	flagVersion     = 0x1
	flagReply       = 1 << 2
	flagNeedReply   = 1 << 3

	maxRegions   = 8
	regionLen    = 32
	maxConfigLen = 256
	configHdrLen = 12
	// maxPayload is above the longest payload of any request served here: a
	// configuration access of 268 bytes.
	maxPayload = 512
	// maxFDs is the most descriptors that a message carries: one per memory
	// region.
	maxFDs = maxRegions
)

var errMalformed = errors.New("malformed vhost-user message")

// header is the start of each message, in both directions.
type header struct {
	req   request
	flags uint32
	size  uint32
}

func decodeHeader(p []byte) (header, error) {
	if len(p) != headerLen {
		return header{}, fmt.Errorf("header of %d bytes: %w", len(p), errMalformed)
	}
	h := header{
		req:   request(binary.LittleEndian.Uint32(p[0:])),
		flags: binary.LittleEndian.Uint32(p[4:]),
		size:  binary.LittleEndian.Uint32(p[8:]),
	}
	if h.flags&flagVersionMask != flagVersion || h.flags&flagReply != 0 {
		return header{}, fmt.Errorf("%v with flags %#x: %w", h.req, h.flags, errMalformed)
	}
	if h.size > maxPayload {
		return header{}, fmt.Errorf("%v with %d bytes of payload: %w", h.req, h.size, errMalformed)
	}
	return h, nil
}

// encodeReply makes the whole reply to a request.
func encodeReply(req request, payload []byte) []byte {
	p := make([]byte, headerLen, headerLen+len(payload))
	binary.LittleEndian.PutUint32(p[0:], uint32(req))
	binary.LittleEndian.PutUint32(p[4:], flagVersion|flagReply)
	binary.LittleEndian.PutUint32(p[8:], uint32(len(payload)))
	return append(p, payload...)
}

func encodeU64(v uint64) []byte {
	return binary.LittleEndian.AppendUint64(nil, v)
}

// message is one received request. It owns fds until they are taken.
type message struct {
	header
	payload []byte
	fds     []int
}

// payloadOf returns the payload if it has exactly n bytes.
func (m *message) payloadOf(n int) ([]byte, error) {
	if len(m.payload) != n {
		return nil, fmt.Errorf("payload of %d bytes, want %d: %w", len(m.payload), n, errMalformed)
	}
	return m.payload, nil
}

func (m *message) u64() (uint64, error) {
	p, err := m.payloadOf(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p), nil
}

// vringState is the payload of SET_VRING_NUM, _BASE and _ENABLE.
type vringState struct {
	index, num uint32
}

func (m *message) vringState() (vringState, error) {
	p, err := m.payloadOf(8)
	if err != nil {
		return vringState{}, err
	}
	return vringState{binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:])}, nil
}

func (s vringState) encode() []byte {
	p := binary.LittleEndian.AppendUint32(nil, s.index)
	return binary.LittleEndian.AppendUint32(p, s.num)
}

// vringAddr is where a ring lies, in the front end's own address space.
type vringAddr struct {
	desc, used, avail uint64
}

func (m *message) vringAddr() (uint32, vringAddr, error) {
	p, err := m.payloadOf(40)
	if err != nil {
		return 0, vringAddr{}, err
	}
	return binary.LittleEndian.Uint32(p), vringAddr{
		desc:  binary.LittleEndian.Uint64(p[8:]),
		used:  binary.LittleEndian.Uint64(p[16:]),
		avail: binary.LittleEndian.Uint64(p[24:]),
	}, nil
}

// vringFile is the payload of SET_VRING_KICK, _CALL and _ERR: the queue in the
// low byte, and in bit 8 whether the message lacks a descriptor.
func (m *message) vringFile() (index uint32, hasFD bool, err error) {
	v, err := m.u64()
	if err != nil {
		return 0, false, err
	}
	hasFD = v&(1<<8) == 0
	want := 0
	if hasFD {
		want = 1
	}
	if len(m.fds) != want {
		return 0, false, fmt.Errorf("%d descriptors, want %d: %w", len(m.fds), want, errMalformed)
	}
	return uint32(v & 0xff), hasFD, nil
}

// deviceState decodes SET_DEVICE_STATE_FD, which has one descriptor: whether the
// state is loaded, otherwise saved. The only phase is the one in which all
// queues are stopped.
func (m *message) deviceState() (load bool, err error) {
	p, err := m.payloadOf(8)
	if err != nil {
		return false, err
	}
	direction, phase := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:])
	if direction > 1 || phase != 0 || len(m.fds) != 1 {
		return false, fmt.Errorf("direction %d, phase %d, %d descriptors: %w", direction, phase, len(m.fds), errMalformed)
	}
	return direction == 1, nil
}

// region is one row of the memory table.
type region struct {
	guestAddr, size, userAddr, offset uint64
}

// memTable decodes a memory table, which must have as many descriptors as
// regions.
func (m *message) memTable() ([]region, error) {
	if len(m.payload) < 8 {
		return nil, fmt.Errorf("memory table of %d bytes: %w", len(m.payload), errMalformed)
	}
	n := binary.LittleEndian.Uint32(m.payload)
	if n == 0 || n > maxRegions || len(m.fds) != int(n) {
		return nil, fmt.Errorf("memory table of %d regions, %d descriptors: %w", n, len(m.fds), errMalformed)
	}
	p := m.payload[8:]
	// The table may be sent at its full length, whatever the count says.
	if len(p) < int(n)*regionLen || len(p) > maxRegions*regionLen {
		return nil, fmt.Errorf("memory table of %d bytes: %w", len(m.payload), errMalformed)
	}
	regions := make([]region, n)
	for i := range regions {
		row := p[i*regionLen:]
		regions[i] = region{
			guestAddr: binary.LittleEndian.Uint64(row[0:]),
			size:      binary.LittleEndian.Uint64(row[8:]),
			userAddr:  binary.LittleEndian.Uint64(row[16:]),
			offset:    binary.LittleEndian.Uint64(row[24:]),
		}
	}
	return regions, nil
}

// configReply answers GET_CONFIG from a device's configuration space; bytes
// beyond its end read as zero.
func (m *message) configReply(space []byte) ([]byte, error) {
	if len(m.payload) < configHdrLen {
		return nil, fmt.Errorf("configuration request of %d bytes: %w", len(m.payload), errMalformed)
	}
	off := binary.LittleEndian.Uint32(m.payload[0:])
	size := binary.LittleEndian.Uint32(m.payload[4:])
	if off > maxConfigLen || size > maxConfigLen-off || len(m.payload) != configHdrLen+int(size) {
		return nil, fmt.Errorf("configuration request for %d bytes at %d: %w", size, off, errMalformed)
	}
	reply := make([]byte, configHdrLen+size)
	copy(reply, m.payload[:configHdrLen])
	if int(off) < len(space) {
		copy(reply[configHdrLen:], space[off:])
	}
	return reply, nil
}
