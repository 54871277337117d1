package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// BTF as Linux's Documentation/bpf/btf.rst describes it.
const (
	btfMagic      = 0xeb9f
	btfHeaderSize = 24
	btfTypeSize   = 12

	btfInt       = 1
	btfArray     = 3
	btfStruct    = 4
	btfUnion     = 5
	btfEnum      = 6
	btfFunc      = 12
	btfFuncProto = 13
	btfVar       = 14
	btfDatasec   = 15
	btfDeclTag   = 17
	btfEnum64    = 19
	btfKinds     = 20 // what comes later has a size that is not known
)

var errNoFunction = errors.New("the kernel's BTF does not have it")

// findFunction returns the BTF id of a function: the number of its type, from 1.
func findFunction(data []byte, name string) (uint32, error) {
	types, words, err := btfSections(data)
	if err != nil {
		return 0, err
	}
	at := bytes.Index(words, []byte("\x00"+name+"\x00"))
	if at < 0 {
		return 0, errNoFunction
	}
	wanted := uint32(at + 1)
	for id := uint32(1); len(types) >= btfTypeSize; id++ {
		info := binary.NativeEndian.Uint32(types[4:])
		kind := info >> 24 & 0x1f
		if kind == btfFunc && binary.NativeEndian.Uint32(types) == wanted {
			return id, nil
		}
		size := btfTypeSize + btfExtra(kind, int(info&0xffff))
		if kind >= btfKinds || size > len(types) {
			return 0, fmt.Errorf("read the kernel's BTF: type %d has kind %d and is not complete or not known", id, kind)
		}
		types = types[size:]
	}
	return 0, errNoFunction
}

// btfSections are the types and the strings.
func btfSections(data []byte) (types, words []byte, err error) {
	if len(data) < btfHeaderSize || binary.NativeEndian.Uint16(data) != btfMagic {
		return nil, nil, errors.New("read the kernel's BTF: want its magic number at its beginning")
	}
	field := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(data[4*i:])) }
	body := field(1)
	section := func(i int) []byte {
		from := body + field(i)
		if to := from + field(i+1); to <= uint64(len(data)) {
			return data[from:to]
		}
		return nil
	}
	if types, words = section(2), section(4); types == nil || words == nil {
		return nil, nil, fmt.Errorf("read the kernel's BTF: a section ends after its %d bytes", len(data))
	}
	return types, words, nil
}

// btfExtra is the bytes that follow a type of n members.
func btfExtra(kind uint32, n int) int {
	switch kind {
	case btfInt, btfVar, btfDeclTag:
		return 4
	case btfArray:
		return 12
	case btfStruct, btfUnion, btfDatasec, btfEnum64:
		return 12 * n
	case btfEnum, btfFuncProto:
		return 8 * n
	}
	return 0
}
