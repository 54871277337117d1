package vhosttest

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The requests used (QEMU docs/interop/vhost-user.rst).
const (
	GetFeatures         = 1
	SetFeatures         = 2
	SetOwner            = 3
	SetMemTable         = 5
	SetLogBase          = 6
	SetLogFD            = 7
	SetVringNum         = 8
	SetVringAddr        = 9
	SetVringBase        = 10
	GetVringBase        = 11
	SetVringKick        = 12
	SetVringCall        = 13
	GetProtocolFeatures = 15
	SetProtocolFeatures = 16
	GetQueueNum         = 17
	SetVringEnable      = 18
	GetConfig           = 24
	SetDeviceStateFD    = 42
	CheckDeviceState    = 43
)

const (
	flagVersion   = 1
	flagNeedReply = 1 << 3
	timeout       = 20 * time.Second
)

// FrontEnd is one connection to a back end. Its methods are for one goroutine.
type FrontEnd struct {
	// Mem is the guest's memory, from Handshake on.
	Mem *Memory

	t    testing.TB
	conn *net.UnixConn
}

// New makes a front end on a connected socket, which the caller owns. The front
// end is closed at the test's end at the latest.
func New(t testing.TB, socket *os.File) *FrontEnd {
	t.Helper()
	c, err := net.FileConn(socket)
	if err != nil {
		t.Fatal(err)
	}
	f := &FrontEnd{t: t, conn: c.(*net.UnixConn)}
	t.Cleanup(f.Close)
	return f
}

// Close ends the connection, as the death of a front end does.
func (f *FrontEnd) Close() { _ = f.conn.Close() }

// Send sends a request unchanged.
func (f *FrontEnd) Send(req, flags uint32, payload []byte, fds ...int) error {
	p := binary.LittleEndian.AppendUint32(nil, req)
	p = binary.LittleEndian.AppendUint32(p, flags|flagVersion)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(payload)))
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := f.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, _, err := f.conn.WriteMsgUnix(append(p, payload...), rights, nil)
	return err
}

// Receive reads the reply to a request.
func (f *FrontEnd) Receive(req uint32) ([]byte, error) {
	var hdr [12]byte
	if _, err := io.ReadFull(f.conn, hdr[:]); err != nil {
		return nil, err
	}
	if got := binary.LittleEndian.Uint32(hdr[:]); got != req {
		f.t.Errorf("reply to request %d, want %d", got, req)
	}
	if flags := binary.LittleEndian.Uint32(hdr[4:]); flags&7 != 5 {
		f.t.Errorf("reply with flags %#x", flags)
	}
	payload := make([]byte, binary.LittleEndian.Uint32(hdr[8:]))
	_, err := io.ReadFull(f.conn, payload)
	return payload, err
}

// Get makes a request that has a reply.
func (f *FrontEnd) Get(req uint32, payload []byte) []byte {
	f.t.Helper()
	if err := f.Send(req, 0, payload); err != nil {
		f.t.Fatal(err)
	}
	p, err := f.Receive(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// Set makes a request, waits until it was done, and reports whether it succeeded.
func (f *FrontEnd) Set(req uint32, payload []byte, fds ...int) bool {
	f.t.Helper()
	if err := f.Send(req, flagNeedReply, payload, fds...); err != nil {
		f.t.Fatal(err)
	}
	p, err := f.Receive(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(p) == 0
}

func (f *FrontEnd) must(req uint32, payload []byte, fds ...int) {
	f.t.Helper()
	if !f.Set(req, payload, fds...) {
		f.t.Fatalf("back end refused request %d", req)
	}
}

// logAll is VHOST_F_LOG_ALL, which QEMU acknowledges only while it logs writes.
const logAll = 1 << 26

// Handshake negotiates all features except logAll, and gives the back end
// memory.
func (f *FrontEnd) Handshake() {
	f.t.Helper()
	features := binary.LittleEndian.Uint64(f.Get(GetFeatures, nil))
	f.must(SetProtocolFeatures, f.Get(GetProtocolFeatures, nil))
	f.must(SetOwner, nil)
	f.must(SetFeatures, U64(features&^logAll))
	f.Mem = NewMemory(f.t, unix.F_SEAL_SHRINK)
	f.must(SetMemTable, f.Mem.Table(), f.Mem.FD())
}

// U64 returns the payload for a single number.
func U64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// State returns the payload for a queue's state.
func State(index, num uint32) []byte { return U64(uint64(index) | uint64(num)<<32) }
