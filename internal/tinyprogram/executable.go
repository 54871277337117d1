package tinyprogram

import (
	"bytes"
	"encoding/binary"
)

// loadAddress is where the program is mapped: what ld(1) takes on x86-64 too.
// Addresses below 2 GiB fit the short forms of the instructions.
const loadAddress = 0x400000

// Sizes of an ELF file's header and of an entry of its program header table
// (elf(5)).
const (
	elfHeaderSize     = 64
	programHeaderSize = 56
	codeOffset        = elfHeaderSize + programHeaderSize
)

// Build returns the executable file of the program that assemble writes. It is
// called twice and must write the same code, but for the addresses of its data.
func Build(assemble func(*Assembler)) []byte {
	// Those depend on the length of the code, but not the other way round.
	draft := new(Assembler)
	assemble(draft)
	final := &Assembler{dataAt: loadAddress + codeOffset + uint32(len(draft.text))}
	assemble(final)
	return executable(final.text, final.data)
}

// executable returns an ELF file with one segment, which maps the whole file,
// readable and executable.
func executable(text, data []byte) []byte {
	size := uint64(codeOffset + len(text) + len(data))
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), // ET_EXEC, EM_X86_64, EV_CURRENT
		uint64(loadAddress + codeOffset), uint64(elfHeaderSize), uint64(0), uint32(0),
		uint16(elfHeaderSize), uint16(programHeaderSize), uint16(1), uint16(0), uint16(0), uint16(0),
		// The program header: PT_LOAD, PF_R|PF_X.
		uint32(1), uint32(5), uint64(0), uint64(loadAddress), uint64(loadAddress), size, size, uint64(0x1000),
	} {
		_ = binary.Write(&b, binary.LittleEndian, field) // writing to a Buffer never fails
	}
	b.Write(text)
	b.Write(data)
	return b.Bytes()
}
