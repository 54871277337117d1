package qemu

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// What a test kernel does after printing, as 32-bit x86 code.
var (
	// idle: cli; hlt; jmp back to hlt.
	idle = []byte{0xfa, 0xf4, 0xeb, 0xfd}
	// powerOff: mov dx, 0x604; mov ax, 0x2000; out dx, ax: sleep state S5 in
	// the PM1a control register where the firmware puts it.
	powerOff = append([]byte{0x66, 0xba, 0x04, 0x06, 0x66, 0xb8, 0x00, 0x20, 0x66, 0xef}, idle...)
	// reset: mov dx, 0xcf9; mov al, 6; out dx, al: ICH9's reset control.
	reset = append([]byte{0x66, 0xba, 0xf9, 0x0c, 0xb0, 0x06, 0xee}, idle...)
)

// testKernel writes an ELF kernel of 8 KiB that QEMU boots directly (PVH): it
// prints text on the serial port and then runs end.
func testKernel(t testing.TB, text string, end []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kernel.elf")
	if err := os.WriteFile(path, pvhKernel(text, end), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	loadAddr  = 0x100000
	noteAt    = 0xb0 // after the ELF header and two program headers
	codeAt    = 0x100
	messageAt = 0x200
	imageSize = 0x2000
)

func pvhKernel(text string, end []byte) []byte {
	image := make([]byte, imageSize)
	le := binary.LittleEndian
	var head bytes.Buffer
	head.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	put := func(v any) { _ = binary.Write(&head, le, v) }
	put([]uint16{2, 62})                                               // executable, x86-64
	put(uint32(1))                                                     // version
	put([]uint64{loadAddr + codeAt, 64, 0})                            // entry, program headers, no sections
	put(uint32(0))                                                     // flags
	put([]uint16{64, 56, 2, 0, 0, 0})                                  // sizes and counts
	put([]uint32{1, 7})                                                // PT_LOAD, rwx
	put([]uint64{0, loadAddr, loadAddr, imageSize, imageSize, 0x1000}) // the whole file
	put([]uint32{4, 4})                                                // PT_NOTE, r
	put([]uint64{noteAt, loadAddr + noteAt, loadAddr + noteAt, 24, 24, 4})
	put([]uint32{4, 8, 18}) // name and value sizes, XEN_ELFNOTE_PHYS32_ENTRY
	head.WriteString("Xen\x00")
	put(uint64(loadAddr + codeAt))
	copy(image, head.Bytes())

	var code bytes.Buffer
	code.WriteByte(0xbe) // mov esi, message
	_ = binary.Write(&code, le, uint32(loadAddr+messageAt))
	code.Write([]byte{0x66, 0xba, 0xf8, 0x03}) // mov dx, 0x3f8
	code.Write([]byte{0xac})                   // next: lodsb
	code.Write([]byte{0x84, 0xc0, 0x74, 0x03}) // test al, al; jz end
	code.Write([]byte{0xee, 0xeb, 0xf8})       // out dx, al; jmp next
	code.Write(end)
	copy(image[codeAt:], code.Bytes())
	copy(image[messageAt:], text)
	return image
}
