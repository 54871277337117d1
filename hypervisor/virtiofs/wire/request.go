package wire

import (
	"slices"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

const (
	// MaxArgs is the most that is copied of a request: the longest one has the
	// value of an extended attribute (XATTR_SIZE_MAX) with its name.
	MaxArgs = 64<<10 + 4096
	// MaxReply is the longest reply without a file's data, in bytes: a request
	// for more, such as a large readdir, is answered in part.
	MaxReply = 64<<10 + 4096

	inHeaderLen  = int(unsafe.Sizeof(fuse.InHeader{}))
	outHeaderLen = int(unsafe.Sizeof(fuse.OutHeader{}))
	writeLen     = int(unsafe.Sizeof(fuse.WriteIn{}))
)

// Request is one request and its reply. It is reused for the next one, and used
// by one goroutine at a time.
type Request struct {
	// Data is what a write writes: the guest's memory, which may change.
	Data vhostuser.Buffers
	// Room is for the data of a read, after the reply's header.
	Room vhostuser.Buffers

	args  []byte // the copied part, including the header
	head  vhostuser.Buffers
	reply []byte
	read  int
}

// usualArgs suffices for most requests: two names and the fixed part.
const usualArgs = 1024

// NewRequest makes an empty request. Its buffers grow as needed.
func NewRequest() *Request { return &Request{args: make([]byte, 0, usualArgs)} }

// Load reads a chain's request. EIO means that it has no header; then there is
// nothing to reply to.
func (r *Request) Load(out, in vhostuser.Buffers) (err error) {
	r.reply, r.read = r.reply[:0], 0
	r.head, r.Room = in.Head(r.head, outHeaderLen), in
	r.Room.Drop(outHeaderLen)
	r.Data = out
	return vhostuser.Guard(func() error { return r.copyArgs() })
}

func (r *Request) copyArgs() error {
	r.args = r.args[:r.Data.CopyTo(r.args[:inHeaderLen])]
	if len(r.args) < inHeaderLen {
		return unix.EIO
	}
	more := writeLen - inHeaderLen
	if r.Op() != Write {
		left := r.Data.Len()
		if left > MaxArgs-uint64(inHeaderLen) {
			return unix.EIO
		}
		more = int(left)
	}
	r.args = slices.Grow(r.args, more)
	n := r.Data.CopyTo(r.args[inHeaderLen : inHeaderLen+more])
	r.args = r.args[:inHeaderLen+n]
	return nil
}

// Header is the request's header.
func (r *Request) Header() *fuse.InHeader {
	return (*fuse.InHeader)(unsafe.Pointer(unsafe.SliceData(r.args)))
}

// Op returns the request's opcode.
func (r *Request) Op() Op { return Op(r.Header().Opcode) }

// Node is the node that the request is about.
func (r *Request) Node() uint64 { return r.Header().NodeId }

// In returns the request's fixed part, T, which begins with the header, and
// what follows it. It returns nil if the request is shorter. T must not hold
// pointers.
func In[T any](r *Request) (*T, []byte) {
	var zero T
	n := int(unsafe.Sizeof(zero))
	if len(r.args) < n {
		return nil, nil
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(r.args))), r.args[n:]
}

// Put appends a structure without pointers to the reply.
func Put[T any](r *Request, v *T) {
	r.PutBytes(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
}

// PutBytes appends bytes to the reply, which may have MaxReply of them.
func (r *Request) PutBytes(p []byte) { r.reply = append(r.reply, p...) }

// Left returns how many bytes may still be added to the reply: bounded by the
// guest's room, and MaxReply. It takes time proportional to the number of the
// room's pieces.
func (r *Request) Left() int {
	return int(min(r.Room.Len(), MaxReply)) - len(r.reply)
}

// ReplyLen returns the length of the reply so far, without its header.
func (r *Request) ReplyLen() int { return len(r.reply) }

// Cut shortens the reply to its first n bytes.
func (r *Request) Cut(n int) { r.reply = r.reply[:n] }

// Filled records that n bytes of Room have been filled with data.
func (r *Request) Filled(n int) { r.read = n }

// Finish writes the reply's header, and the reply unless status is an error,
// to guest memory. It returns the number of bytes written, including data: 0 if
// the request has no reply or its room is too small.
func (r *Request) Finish(status unix.Errno) (written uint32, err error) {
	if len(r.args) < inHeaderLen || !r.Op().HasReply() {
		return 0, nil
	}
	if status != 0 {
		r.reply, r.read = r.reply[:0], 0
	}
	h := fuse.OutHeader{Length: uint32(outHeaderLen + len(r.reply) + r.read), Status: -int32(status), Unique: r.Header().Unique}
	err = vhostuser.Guard(func() error {
		n := r.head.CopyFrom(unsafe.Slice((*byte)(unsafe.Pointer(&h)), outHeaderLen))
		if n == outHeaderLen && r.Room.CopyFrom(r.reply) == len(r.reply) {
			written = h.Length
		}
		return nil
	})
	return written, err
}
