package tinyprogram

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Assembler collects a program's instructions and its data, which is read-only.
type Assembler struct {
	text, data []byte
	dataAt     uint32
}

// Emit adds machine code.
func (a *Assembler) Emit(code ...byte) { a.text = append(a.text, code...) }

// Len is the length of the code so far.
func (a *Assembler) Len() int { return len(a.text) }

// PutOffset changes the four bytes of code before an offset to the distance from
// there to another: the target of a jump.
func (a *Assembler) PutOffset(after, target int) {
	binary.LittleEndian.PutUint32(a.text[after-4:], uint32(target-after))
}

// Word adds data, 8-byte aligned within the data, and returns its address.
func (a *Assembler) Word(data []byte) uint32 {
	for len(a.data)%8 != 0 {
		a.data = append(a.data, 0)
	}
	at := a.dataAt + uint32(len(a.data))
	a.data = append(a.data, data...)
	return at
}

// registers are the instructions that load a constant into the register of
// each argument of a system call: mov edi, esi, edx, r10d, r8d. They clear the
// upper half.
var registers = [][]byte{{0xbf}, {0xbe}, {0xba}, {0x41, 0xba}, {0x41, 0xb8}}

// Call makes a system call of at most five arguments; its result is in eax.
func (a *Assembler) Call(number uint32, args ...uint32) {
	for i, arg := range args {
		a.Emit(registers[i]...)
		a.Emit(Words(arg)...)
	}
	a.Emit(0xb8) // mov eax
	a.Emit(Words(number)...)
	a.Emit(0x0f, 0x05) // syscall
}

// Exit ends the program.
func (a *Assembler) Exit(status uint32) { a.Call(unix.SYS_EXIT_GROUP, status) }

// Words returns numbers as they are in memory.
func Words(list ...uint32) []byte {
	var b []byte
	for _, w := range list {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
