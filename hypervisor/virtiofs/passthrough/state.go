package passthrough

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// The state of an FS is what its guest knows: numbers, and what they stand for.
// It is saved with the guest's machine (save.go), and loaded into the FS of
// another one, whose share has the same files, perhaps copies (load.go). So it
// has no inode numbers or mounts, which are found anew, no contents, and of devices
// only the numbers that the guest's inode numbers have in them (inode.go).
//
// What the guest has open is opened again. Lost are: a directory's position, if
// the copy has another order of entries, so that a guest in the middle of
// reading it may miss some; and a write error of the host that no fsync has
// reported yet. Locks are not lost: the guest's kernel has them itself (wanted).
//
// The format is a magic, then numbers of variable length (encoding/binary):
//
//	version, minor version and features of the session
//	nodes:   distance to the last number, kind (0: gone) and above it device, lookups,
//	         and unless it is gone: parent, length of the name, name, and of a link stampOf
//	0
//	handles: distance to the last number, node, bits, open flags
//	0
//
// The share's root, number 1, is no record. The numbers of each list increase.
// What a later version changes of the session's fixed parts, such as the longest
// write, is a new version of the format too.

const (
	stateMagic   = "katabox-fs"
	stateVersion = 2
	// withoutStamps is the version that had no links' stamps: each link of such a state is
	// stale.
	withoutStamps = 1

	kindGone  = 0
	kindShift = 12 // of a mode's kind of file
	kindBits  = 4

	bitDir    = 1 << 0
	bitClosed = 1 << 1
)

var errState = fmt.Errorf("malformed state of shared files: %w", errdefs.ErrInvalidArgument)

// savedNode is a node's record. kind is a mode's, or kindGone; stamp is a link's.
type savedNode struct {
	id, parent, lookups uint64
	kind, device        uint16
	stamp               uint32
	name                string
}

// savedHandle is a handle's record.
type savedHandle struct {
	id, node    uint64
	flags       uint32
	dir, closed bool
}

// encoder writes a state. It collects records in p, which the caller flushes.
type encoder struct {
	w    io.Writer
	p    []byte
	last uint64
}

func (e *encoder) number(v uint64) { e.p = binary.AppendUvarint(e.p, v) }

// id writes a record's number.
func (e *encoder) id(v uint64) {
	e.number(v - e.last)
	e.last = v
}

func (e *encoder) head(session uint64) {
	e.p = append(e.p, stateMagic...)
	e.number(stateVersion)
	e.number(session >> 32)
	e.number(session & 0xffffffff)
}

func (e *encoder) node(n savedNode) {
	e.id(n.id)
	e.number(uint64(n.device)<<kindBits | uint64(n.kind>>kindShift))
	e.number(n.lookups)
	if n.kind == kindGone {
		return
	}
	e.number(n.parent)
	e.number(uint64(len(n.name)))
	e.p = append(e.p, n.name...)
	if n.kind == unix.S_IFLNK {
		e.number(uint64(n.stamp))
	}
}

func (e *encoder) handle(h savedHandle) {
	bits := uint64(0)
	if h.dir {
		bits |= bitDir
	}
	if h.closed {
		bits |= bitClosed
	}
	e.id(h.id)
	e.number(h.node)
	e.number(bits)
	e.number(uint64(h.flags))
}

// end ends a list.
func (e *encoder) end() {
	e.number(0)
	e.last = 0
}

func (e *encoder) flush() error {
	_, err := e.w.Write(e.p)
	e.p = e.p[:0]
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// decoder reads a state, whose bytes are not trusted. The first error stays,
// and everything that is read after it is zero.
type decoder struct {
	r       *bufio.Reader
	err     error
	last    uint64
	version uint64
}

// number reads a number that must be at most most.
func (d *decoder) number(what string, most uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(d.r)
	if err != nil {
		d.fail(what, err)
		return 0
	}
	if v > most {
		d.err = fmt.Errorf("%s %d, at most %d: %w", what, v, most, errState)
		return 0
	}
	return v
}

// fail records why something cannot be read.
func (d *decoder) fail(what string, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("it ends early: %w", errState)
	}
	d.err = fmt.Errorf("read %s of state: %w", what, err)
}

// id reads a record's number; ok is false at the end of the list.
func (d *decoder) id(what string, most uint64) (id uint64, ok bool) {
	delta := d.number(what, most)
	id = d.last + delta
	if id > most && d.err == nil {
		d.err = fmt.Errorf("%s %d, at most %d: %w", what, id, most, errState)
	}
	d.last = id
	if delta == 0 || d.err != nil {
		d.last = 0
		return 0, false
	}
	return id, true
}

// head reads the session.
func (d *decoder) head() (minor, flags uint32) {
	magic := make([]byte, len(stateMagic))
	if _, err := io.ReadFull(d.r, magic); err != nil {
		d.fail("magic", err)
		return 0, 0
	}
	d.version = d.number("version", 1<<32)
	if known := d.version == stateVersion || d.version == withoutStamps; d.err == nil && (string(magic) != stateMagic || !known) {
		d.err = fmt.Errorf("state %q of version %d, this is version %d: %w", magic, d.version, stateVersion, errdefs.ErrFailedPrecondition)
	}
	return uint32(d.number("minor version", 1<<32-1)), uint32(d.number("features", 1<<32-1))
}

// node reads a node's record; ok is false at the end of the list, and after an
// error.
func (d *decoder) node() (n savedNode, ok bool) {
	if n.id, ok = d.id("node", maxNodes); !ok {
		return savedNode{}, false
	}
	if n.id == rootID {
		d.err = fmt.Errorf("node %d is the root: %w", n.id, errState)
	}
	kind := d.number("kind", maxDevices<<kindBits|(1<<kindBits-1))
	n.kind, n.device = uint16(kind&(1<<kindBits-1))<<kindShift, uint16(kind>>kindBits)
	if n.kind == kindGone && n.device != 0 && d.err == nil {
		d.err = fmt.Errorf("node %d is gone and has device %d: %w", n.id, n.device, errState)
	}
	n.lookups = d.number("lookups", 1<<64-1)
	if n.kind != kindGone {
		n.parent = d.number("parent", maxNodes)
		n.name = d.name()
	}
	if n.kind == unix.S_IFLNK && d.version != withoutStamps {
		n.stamp = uint32(d.number("stamp of a link", 1<<32-1))
	}
	return n, d.err == nil
}

// name reads a name, which is one component.
func (d *decoder) name() string {
	p := make([]byte, d.number("name's length", wire.NameMax)+1)
	if d.err != nil {
		return ""
	}
	if _, err := io.ReadFull(d.r, p[:len(p)-1]); err != nil {
		d.fail("name", err)
		return ""
	}
	name, rest, errno := wire.Name(p)
	if errno != 0 || len(rest) != 0 {
		d.err = fmt.Errorf("name %q: %w", p[:len(p)-1], errState)
		return ""
	}
	return name
}

// handle reads a handle's record, whose number is at most most; ok is as of
// node.
func (d *decoder) handle(most int) (h savedHandle, ok bool) {
	if h.id, ok = d.id("handle", uint64(most)); !ok {
		return savedHandle{}, false
	}
	h.node = d.number("node of a handle", maxNodes)
	bits := d.number("bits of a handle", bitDir|bitClosed)
	h.dir, h.closed = bits&bitDir != 0, bits&bitClosed != 0
	h.flags = uint32(d.number("open flags", 1<<32-1))
	return h, d.err == nil
}

// end checks that nothing follows.
func (d *decoder) end() error {
	if d.err != nil {
		return d.err
	}
	switch _, err := d.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("bytes after the end: %w", errState)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("read end of state: %w", err)
	}
	return nil
}
