package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Sizes of ELF64 headers (gABI).
const (
	elfHeaderSize  = 64
	progHeaderSize = 56
)

// pageSize is the alignment of segments in a compact kernel.
const pageSize = 4096

// compact rewrites a kernel so that it has only what a loader copies: the
// segments without the zeros at their ends, which become memory that the loader
// clears (a segment whose memory is larger than its content).
//
// It removes the zeroed data that the kernel's linker script puts into the file
// (.bss, .brk, .init.scratch), the section table, which names no symbols, and the
// relocation table after the ELF, which only the decompressor in a bzImage reads
// (arch/x86/boot/compressed/misc.c).
func compact(data []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("not an x86-64 kernel: %v %v %v", f.Class, f.Data, f.Machine)
	}
	out := make([]byte, pageAlign(elfHeaderSize+progHeaderSize*len(f.Progs)))
	headers := make([]elf.Prog64, len(f.Progs))
	for i, p := range f.Progs {
		content, err := segment(data, p.ProgHeader)
		if err != nil {
			return nil, fmt.Errorf("read segment %d: %w", i, err)
		}
		headers[i] = header64(p.ProgHeader)
		if p.Type == elf.PT_LOAD {
			content = bytes.TrimRight(content, "\x00")
		}
		headers[i].Off, headers[i].Filesz = uint64(len(out)), uint64(len(content))
		out = append(out, content...)
		out = append(out, make([]byte, pageAlign(len(out))-len(out))...)
		if len(out) > maxKernel {
			return nil, fmt.Errorf("segments are longer than %d bytes", maxKernel)
		}
	}
	return out, putHeaders(out, f, headers)
}

func pageAlign(size int) int { return (size + pageSize - 1) &^ (pageSize - 1) }

// segment returns a segment's content in the file.
func segment(data []byte, p elf.ProgHeader) ([]byte, error) {
	size := uint64(len(data))
	if p.Off > size || p.Filesz > size-p.Off {
		return nil, errors.New("it lies outside of the file")
	}
	if p.Type == elf.PT_LOAD && p.Memsz < p.Filesz {
		return nil, errors.New("its memory is smaller than its content")
	}
	return data[p.Off : p.Off+p.Filesz], nil
}

func header64(p elf.ProgHeader) elf.Prog64 {
	return elf.Prog64{
		Type: uint32(p.Type), Flags: uint32(p.Flags),
		Vaddr: p.Vaddr, Paddr: p.Paddr, Memsz: p.Memsz,
		// A loader that maps files requires offset and address to agree modulo
		// the alignment; these agree modulo the page size.
		Align: min(p.Align, pageSize),
	}
}

// putHeaders writes the ELF header and the program headers to the start of out.
func putHeaders(out []byte, f *elf.File, headers []elf.Prog64) error {
	hdr := elf.Header64{
		Type: uint16(f.Type), Machine: uint16(f.Machine), Version: uint32(f.Version),
		Entry: f.Entry,
		Phoff: elfHeaderSize, Phentsize: progHeaderSize, Phnum: uint16(len(headers)),
		Ehsize: elfHeaderSize,
	}
	copy(hdr.Ident[:], elf.ELFMAG)
	hdr.Ident[elf.EI_CLASS] = byte(f.Class)
	hdr.Ident[elf.EI_DATA] = byte(f.Data)
	hdr.Ident[elf.EI_VERSION] = byte(f.Version)
	n, err := binary.Encode(out, binary.LittleEndian, &hdr)
	if err != nil {
		return fmt.Errorf("write ELF header: %w", err)
	}
	if _, err := binary.Encode(out[n:], binary.LittleEndian, headers); err != nil {
		return fmt.Errorf("write program headers: %w", err)
	}
	return nil
}

// pvhEntry returns the PVH entry of a kernel, or 0 if it has none.
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
