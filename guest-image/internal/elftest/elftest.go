package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
)

const (
	headerSize     = 64
	progHeaderSize = 56
	sectHeaderSize = 64
)

// Segment is a segment of an executable.
type Segment struct {
	Type elf.ProgType
	// Paddr is its physical address.
	Paddr uint64
	Data  []byte
	// Memsz is its size in memory; 0 is the length of Data.
	Memsz uint64
}

// Kernel returns an x86-64 executable of the given segments.
func Kernel(segments ...Segment) []byte {
	offset := uint64(headerSize + progHeaderSize*len(segments))
	var headers, body bytes.Buffer
	for _, s := range segments {
		write(&headers, elf.Prog64{
			Type: uint32(s.Type), Flags: uint32(elf.PF_R | elf.PF_X),
			Off: offset + uint64(body.Len()), Vaddr: s.Paddr, Paddr: s.Paddr,
			Filesz: uint64(len(s.Data)), Memsz: max(s.Memsz, uint64(len(s.Data))), Align: 4096,
		})
		body.Write(s.Data)
	}
	hdr := header(elf.ET_EXEC)
	hdr.Phoff, hdr.Phentsize, hdr.Phnum = headerSize, progHeaderSize, uint16(len(segments))
	return join(hdr, headers.Bytes(), body.Bytes())
}

// Note returns one ELF note.
func Note(name string, kind uint32, desc []byte) []byte {
	var out bytes.Buffer
	write(&out, []uint32{uint32(len(name) + 1), uint32(len(desc)), kind})
	out.WriteString(name + "\x00")
	pad(&out)
	out.Write(desc)
	pad(&out)
	return out.Bytes()
}

// PVHNote returns the note that names a kernel's PVH entry.
func PVHNote(entry uint32) []byte {
	return Note("Xen", 18, binary.LittleEndian.AppendUint32(nil, entry))
}

// Module returns a relocatable file with a .modinfo section of the given
// "key=value" entries.
func Module(modinfo ...string) []byte {
	const names = "\x00.modinfo\x00.shstrtab\x00"
	info := strings.Join(modinfo, "\x00") + "\x00"
	start := uint64(headerSize)
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: start, Size: uint64(len(info)), Addralign: 1},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: start + uint64(len(info)), Size: uint64(len(names)), Addralign: 1},
	}
	hdr := header(elf.ET_REL)
	hdr.Shoff, hdr.Shentsize = start+uint64(len(info)+len(names)), sectHeaderSize
	hdr.Shnum, hdr.Shstrndx = uint16(len(sections)), 2
	var table bytes.Buffer
	write(&table, sections)
	return join(hdr, []byte(info+names), table.Bytes())
}

// Static returns the smallest file that is accepted as a static program: it has
// no interpreter.
func Static(content string) []byte {
	return Kernel(Segment{Type: elf.PT_LOAD, Paddr: 0x400000, Data: []byte(content)})
}

func header(kind elf.Type) *elf.Header64 {
	hdr := &elf.Header64{
		Type: uint16(kind), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: headerSize,
	}
	copy(hdr.Ident[:], elf.ELFMAG)
	hdr.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	hdr.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	hdr.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	return hdr
}

func join(hdr *elf.Header64, parts ...[]byte) []byte {
	var out bytes.Buffer
	write(&out, hdr)
	for _, part := range parts {
		out.Write(part)
	}
	return out.Bytes()
}

// write appends data of fixed size. It cannot fail: a bytes.Buffer accepts
// everything.
func write(out *bytes.Buffer, data any) {
	_ = binary.Write(out, binary.LittleEndian, data)
}

func pad(out *bytes.Buffer) {
	for out.Len()%4 != 0 {
		out.WriteByte(0)
	}
}
