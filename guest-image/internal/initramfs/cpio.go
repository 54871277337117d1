package initramfs

import (
	"bytes"
	"fmt"
	"math"
)

// trailer is the name of the entry that ends an archive.
const trailer = "TRAILER!!!"

// blockSize is what cpio(1) pads an archive to.
const blockSize = 512

// Archive returns the tree as a cpio archive in the newc format.
func (t *Tree) Archive() ([]byte, error) {
	var out bytes.Buffer
	out.Grow(t.size())
	for i, name := range t.names() {
		e := t.entries[name]
		if len(e.data) > math.MaxUint32 {
			return nil, fmt.Errorf("archive %s: %d bytes are above the format's limit", name, len(e.data))
		}
		appendEntry(&out, uint32(i+1), name, e)
	}
	appendEntry(&out, 0, trailer, entry{})
	pad(&out, blockSize)
	return out.Bytes(), nil
}

// size is an upper bound of the archive's length without the trailer.
func (t *Tree) size() int {
	size := 2 * blockSize
	for name, e := range t.entries {
		size += 128 + len(name) + len(e.data)
	}
	return size
}

// appendEntry writes a header of 13 hexadecimal fields, the name with its NUL
// and the content; name and content end on a multiple of 4.
func appendEntry(out *bytes.Buffer, ino uint32, name string, e entry) {
	nlink := uint32(1)
	if e.mode&typeDir != 0 {
		nlink = 2
	}
	fields := [13]uint32{
		ino, e.mode,
		0, 0, // uid, gid
		nlink,
		0, // mtime
		uint32(len(e.data)),
		0, 0, // device of the file system
		e.major, e.minor,
		uint32(len(name) + 1),
		0, // checksum, not used by newc
	}
	out.WriteString("070701")
	for _, field := range fields {
		fmt.Fprintf(out, "%08x", field)
	}
	out.WriteString(name)
	out.WriteByte(0)
	pad(out, 4)
	out.Write(e.data)
	pad(out, 4)
}

func pad(out *bytes.Buffer, size int) {
	for out.Len()%size != 0 {
		out.WriteByte(0)
	}
}
