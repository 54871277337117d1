package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// noteXenPhys32Entry is XEN_ELFNOTE_PHYS32_ENTRY: the note whose content is
// the physical address of the PVH entry (Xen public/elfnote.h).
const noteXenPhys32Entry = 18

// trim cuts off what follows the ELF in a payload: the relocation table of a
// kernel built for address space randomisation, which only the decompressor
// in the bzImage reads (arch/x86/boot/compressed/misc.c).
func trim(data []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil, fmt.Errorf("not an x86-64 kernel: %v %v %v", f.Class, f.Machine, f.Type)
	}
	end, err := extent(f, data)
	if err != nil {
		return nil, err
	}
	return data[:end], nil
}

// extent returns where the last byte that an ELF refers to ends.
func extent(f *elf.File, data []byte) (uint64, error) {
	var hdr elf.Header64
	if err := binary.Read(bytes.NewReader(data), f.ByteOrder, &hdr); err != nil {
		return 0, err
	}
	end := max(
		hdr.Phoff+uint64(hdr.Phnum)*uint64(hdr.Phentsize),
		hdr.Shoff+uint64(hdr.Shnum)*uint64(hdr.Shentsize))
	for _, p := range f.Progs {
		end = max(end, p.Off+p.Filesz)
		if p.Off > uint64(len(data)) || p.Filesz > uint64(len(data)) {
			return 0, errors.New("a segment lies outside of the file")
		}
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS {
			end = max(end, s.Offset+s.FileSize)
		}
	}
	if end > uint64(len(data)) {
		return 0, fmt.Errorf("file ends at %d, its contents at %d", len(data), end)
	}
	return end, nil
}

// pvhEntry returns the PVH entry of a kernel, 0 if it has none.
func pvhEntry(data []byte) (uint64, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(p.Open())
		if err != nil {
			return 0, err
		}
		if entry := xenEntry(notes); entry != 0 {
			return entry, nil
		}
	}
	return 0, nil
}

// xenEntry walks the notes of a segment: name size, content size and type,
// 4 bytes each, then name and content, each padded to 4 bytes (gABI, "Note
// Section").
func xenEntry(notes []byte) uint64 {
	le := binary.LittleEndian
	for len(notes) >= 12 {
		nameSize, descSize, kind := uint64(le.Uint32(notes)), uint64(le.Uint32(notes[4:])), le.Uint32(notes[8:])
		notes = notes[12:]
		namePad, descPad := (nameSize+3)&^3, (descSize+3)&^3
		if namePad+descPad > uint64(len(notes)) {
			return 0
		}
		name, desc := notes[:nameSize], notes[namePad:namePad+descSize]
		notes = notes[namePad+descPad:]
		if kind != noteXenPhys32Entry || string(name) != "Xen\x00" {
			continue
		}
		switch len(desc) {
		case 4:
			return uint64(le.Uint32(desc))
		case 8:
			return le.Uint64(desc)
		}
	}
	return 0
}
