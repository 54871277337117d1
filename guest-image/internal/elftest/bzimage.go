package elftest

import "encoding/binary"

// BzImage describes a bzImage to generate.
type BzImage struct {
	// Protocol is the boot protocol's version; 0 is 2.15.
	Protocol uint16
	// SetupSects is the header's setup_sects; it may be 0.
	SetupSects byte
	// Payload is the compressed kernel, followed by its length.
	Payload []byte
	// PayloadLength replaces the length of Payload in the header.
	PayloadLength uint32
}

// Bytes returns the bzImage: setup header, setup code, protected-mode
// code with the payload (Documentation/arch/x86/boot.rst).
func (b BzImage) Bytes() []byte {
	const stub = 64
	sects := int(b.SetupSects)
	if sects == 0 {
		sects = 4
	}
	out := make([]byte, (sects+1)*512+stub)
	le := binary.LittleEndian
	protocol, length := b.Protocol, b.PayloadLength
	if protocol == 0 {
		protocol = 0x020f
	}
	if length == 0 {
		length = uint32(len(b.Payload))
	}
	out[0x1f1] = b.SetupSects
	copy(out[0x202:], "HdrS")
	le.PutUint16(out[0x206:], protocol)
	le.PutUint32(out[0x248:], stub)
	le.PutUint32(out[0x24c:], length)
	return append(out, b.Payload...)
}

// WithLength appends the length of a packed kernel's content, as the kernel's
// build does (scripts/Makefile.lib, size_append).
func WithLength(packed []byte, unpacked int) []byte {
	return binary.LittleEndian.AppendUint32(packed[:len(packed):len(packed)], uint32(unpacked))
}
