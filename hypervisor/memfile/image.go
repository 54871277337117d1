package memfile

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/s2"
)

// Key encrypts one image. It must be random and used for one image only: the
// nonces are the same in every image.
type Key [32]byte

// Stored says how large an image is.
type Stored struct {
	Memory uint64 // bytes of memory in it, without holes
	Image  uint64 // bytes of the image
}

// An image is imageMagic and records. A record is a header in the clear, data
// encrypted with AES-256-GCM, and GCM's tag. The header is authenticated with
// the data, and the record's number is the nonce, so that no record can be
// changed, moved, dropped or repeated. Numbers are little-endian.
//
//	recordStart  once, first: the data is the size of each part, 8 bytes
//	recordPlain  a block of a part's memory
//	recordS2     the same, compressed
//	recordEnd    once, last: the data is the number of records before it and
//	             their bytes of memory, 8 bytes each

// imageMagic begins an image. Its last byte is the format's version.
const imageMagic = "katabox memory\x00\x01"

const (
	recordStart = iota + 1
	recordPlain
	recordS2
	recordEnd
)

const (
	// imageBlock is how much memory a record has at most. It stays in the CPU's
	// cache while it is read, compressed, encrypted and written.
	imageBlock = 256 << 10
	// imageBuffer is what is written or read at a time when records are small,
	// which they are if the memory's data is scattered.
	imageBuffer = 64 << 10

	headerSize = 1 + 4 + 8 + 4 + 4
	tagSize    = 16
)

// maxRecord is a record's greatest size, with space for a block that grows when
// it is compressed.
var maxRecord = headerSize + s2.MaxEncodedLen(imageBlock) + tagSize

// recordHeader says what a record's data is.
type recordHeader struct {
	kind   byte
	part   uint32 // index of the part of the memory
	offset uint64 // in that part
	memory uint32 // bytes of memory that the data is when decompressed
	data   uint32 // bytes of data in the record, without GCM's tag
}

func (h recordHeader) append(to []byte) []byte {
	to = append(to, h.kind)
	to = binary.LittleEndian.AppendUint32(to, h.part)
	to = binary.LittleEndian.AppendUint64(to, h.offset)
	to = binary.LittleEndian.AppendUint32(to, h.memory)
	return binary.LittleEndian.AppendUint32(to, h.data)
}

// parseHeader reads a header from headerSize bytes. It checks what must be known
// before the record is authenticated: that the record fits into the buffers.
func parseHeader(from []byte) (recordHeader, error) {
	h := recordHeader{
		kind:   from[0],
		part:   binary.LittleEndian.Uint32(from[1:]),
		offset: binary.LittleEndian.Uint64(from[5:]),
		memory: binary.LittleEndian.Uint32(from[13:]),
		data:   binary.LittleEndian.Uint32(from[17:]),
	}
	if h.memory > imageBlock || h.data > imageBlock {
		return h, fmt.Errorf("it has %d bytes for %d bytes of memory, want at most %d", h.data, h.memory, imageBlock)
	}
	return h, nil
}

// recordCipher encrypts or decrypts an image's records, in order.
type recordCipher struct {
	cipher.AEAD
	records uint64 // done so far
	nonce   [12]byte
}

func newRecordCipher(key Key) (recordCipher, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return recordCipher{}, err
	}
	aead, err := cipher.NewGCM(block)
	return recordCipher{AEAD: aead}, err
}

// next returns the next record's nonce. It is valid until the next call.
func (c *recordCipher) next() []byte {
	binary.LittleEndian.PutUint64(c.nonce[:], c.records)
	c.records++
	return c.nonce[:]
}

// memorySizes returns the sizes of a memory's parts, and the same as a start
// record's data.
func memorySizes(memory []Memory) (sizes []uint64, data []byte, err error) {
	if len(memory) > imageBlock/8 {
		return nil, nil, fmt.Errorf("%d parts, want at most %d", len(memory), imageBlock/8)
	}
	for _, part := range memory {
		size, err := part.Size()
		if err != nil {
			return nil, nil, err
		}
		sizes = append(sizes, size)
		data = binary.LittleEndian.AppendUint64(data, size)
	}
	return sizes, data, nil
}
