package warmup

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Output is what the container's program writes.
const Output = "hello\n"

// loadAt is the program's address: any above the kernel's vm.mmap_min_addr.
const loadAt = 0x400000

// program returns the container's program, which writes Output and ends: an ELF
// file of one segment, for the guest's x86-64 Linux. It is written here because
// no program of the host is known to be there and to be small: a large one would
// cost the guest memory, and each page of it a request to the host.
func program() []byte {
	const headers = 64 + 56 // sizes of the two structures below
	text := code(loadAt + headers)
	size := uint64(headers + len(text))
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Entry: loadAt + headers, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	segment := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: loadAt, Paddr: loadAt, Filesz: size, Memsz: size, Align: 0x1000,
	}
	var file bytes.Buffer
	_ = binary.Write(&file, binary.LittleEndian, header) // a Buffer takes everything
	_ = binary.Write(&file, binary.LittleEndian, segment)
	file.Write(text)
	return file.Bytes()
}

// code returns the instructions, which are to be at an address, and Output after
// them.
func code(at uint32) []byte {
	const text = 31 // the length of the instructions
	c := []byte{
		0xb8, 1, 0, 0, 0, // mov $SYS_write, %eax
		0xbf, 1, 0, 0, 0, // mov $1, %edi
		0xbe, 0, 0, 0, 0, // mov $text, %esi
		0xba, byte(len(Output)), 0, 0, 0, // mov $len, %edx
		0x0f, 0x05, // syscall
		0xb8, 231, 0, 0, 0, // mov $SYS_exit_group, %eax
		0x31, 0xff, // xor %edi, %edi
		0x0f, 0x05, // syscall
	}
	binary.LittleEndian.PutUint32(c[11:], at+text)
	return append(c, Output...)
}
