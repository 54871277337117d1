package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/katabox/katabox/guest-image/internal/decompress"
)

// Offsets in a bzImage, from boot.rst.
const (
	offSetupSects    = 0x1f1
	offMagic         = 0x202
	offProtocol      = 0x206
	offPayloadOffset = 0x248
	offPayloadLength = 0x24c
	headerEnd        = 0x250

	sectorSize = 512
	// payloadProtocol is the first boot protocol with a payload offset.
	payloadProtocol = 0x0208
	// defaultSetupSects is the meaning of a setup_sects of 0.
	defaultSetupSects = 4
)

// maxKernel bounds an unpacked kernel, in bytes.
const maxKernel = 512 << 20

// ErrNotBzImage means that a file has no setup header of an x86 kernel.
var ErrNotBzImage = errors.New("not an x86 bzImage of boot protocol 2.08 or later")

// Image is a kernel extracted from its bzImage.
type Image struct {
	// Compression is the payload's compression format.
	Compression decompress.Format
	// Unpacked is the size of the decompressed payload, in bytes.
	Unpacked int
	// ELF is the kernel, reduced to the parts that a loader copies.
	ELF []byte
	// PVHEntry is the physical address of the PVH entry, or 0 if there is none:
	// QEMU can start such a kernel only as a bzImage.
	PVHEntry uint64
}

// Unpack extracts the kernel from a bzImage. It may run the host's xz or zstd;
// ctx ends that.
func Unpack(ctx context.Context, bz []byte) (*Image, error) {
	packed, err := payload(bz)
	if err != nil {
		return nil, fmt.Errorf("find payload: %w", err)
	}
	img := &Image{Compression: decompress.Detect(packed)}
	unpacked, err := inflate(ctx, packed)
	if err != nil {
		return nil, err
	}
	img.Unpacked = len(unpacked)
	if img.ELF, err = compact(unpacked); err != nil {
		return nil, fmt.Errorf("read kernel ELF: %w", err)
	}
	if img.PVHEntry, err = pvhEntry(img.ELF); err != nil {
		return nil, fmt.Errorf("read kernel notes: %w", err)
	}
	return img, nil
}

// payload returns the compressed kernel within a bzImage.
func payload(bz []byte) ([]byte, error) {
	le := binary.LittleEndian
	if len(bz) < headerEnd || string(bz[offMagic:offMagic+4]) != "HdrS" ||
		le.Uint16(bz[offProtocol:]) < payloadProtocol {
		return nil, ErrNotBzImage
	}
	sects := uint64(bz[offSetupSects])
	if sects == 0 {
		sects = defaultSetupSects
	}
	// boot.rst: the offset counts from the start of the protected-mode code.
	start := (sects+1)*sectorSize + uint64(le.Uint32(bz[offPayloadOffset:]))
	length := uint64(le.Uint32(bz[offPayloadLength:]))
	if length < 8 || start > uint64(len(bz)) || length > uint64(len(bz))-start {
		return nil, fmt.Errorf("payload of %d bytes at %d lies outside of the %d byte file", length, start, len(bz))
	}
	return bz[start : start+length], nil
}

// inflate decompresses a payload. Its last 4 bytes are the length of the
// result, little endian (boot.rst, payload_length; gzip ends in it anyway).
func inflate(ctx context.Context, packed []byte) ([]byte, error) {
	if decompress.Detect(packed) == decompress.None {
		return packed, nil
	}
	tail := len(packed) - 4
	want := int64(binary.LittleEndian.Uint32(packed[tail:]))
	if want > maxKernel {
		return nil, fmt.Errorf("decompress payload: length %d is above %d bytes", want, maxKernel)
	}
	if decompress.Detect(packed) != decompress.Gzip {
		packed = packed[:tail]
	}
	out, err := decompress.Bytes(ctx, packed, want)
	if err != nil {
		return nil, err
	}
	if int64(len(out)) != want {
		return nil, fmt.Errorf("decompress payload: %d bytes, its header says %d", len(out), want)
	}
	return out, nil
}
