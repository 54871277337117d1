package container

import (
	"encoding/binary"
	"errors"
	"testing"
)

// btf makes BTF of types, each of whole words, and strings.
func btf(types []uint32, words string) []byte {
	order := binary.NativeEndian
	data := order.AppendUint16(nil, btfMagic)
	data = append(data, 1, 0)
	for _, word := range []uint32{btfHeaderSize, 0, uint32(4 * len(types)), uint32(4 * len(types)), uint32(len(words))} {
		data = order.AppendUint32(data, word)
	}
	for _, word := range types {
		data = order.AppendUint32(data, word)
	}
	return append(data, words...)
}

// kindOf is a type's second word.
func kindOf(kind, members uint32) uint32 { return kind<<24 | members }

func TestFindFunction(t *testing.T) {
	const words = "\x00wanted_not\x00wanted\x00"
	const other, name = 1, 12
	// Each kind with what follows it, an entry of the name that is not a function,
	// then the function.
	types := []uint32{
		0, kindOf(btfInt, 0), 4, 0,
		0, kindOf(btfArray, 0), 0, 1, 1, 3,
		0, kindOf(btfStruct, 2), 8, 0, 1, 0, 0, 1, 32,
		0, kindOf(btfUnion, 1), 8, 0, 1, 0,
		0, kindOf(btfEnum, 1), 4, 0, 0,
		0, kindOf(btfFuncProto, 2), 1, 0, 1, 0, 1,
		name, kindOf(btfVar, 0), 1, 0,
		0, kindOf(btfDatasec, 1), 4, 1, 0, 4,
		name, kindOf(btfDeclTag, 0), 1, 0,
		0, kindOf(btfEnum64, 1), 8, 0, 0, 0,
		other, kindOf(btfFunc, 1), 6,
		name, kindOf(btfFunc, 1), 6,
	}
	if id, err := findFunction(btf(types, words), "wanted"); id != 12 || err != nil {
		t.Errorf("found %d, %v; want 12", id, err)
	}
	for name, data := range map[string][]byte{"no function": btf(types[:len(types)-3], words), "no name": btf(types, "\x00wanted_not\x00")} {
		if id, err := findFunction(data, "wanted"); !errors.Is(err, errNoFunction) {
			t.Errorf("%s: found %d, %v", name, id, err)
		}
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "not BTF": []byte("a file that is long enough"), "cut": btf(types, words)[:60],
		"a kind of the future": btf([]uint32{0, kindOf(btfKinds, 0), 0}, words),
		"a type without end":   btf([]uint32{0, kindOf(btfStruct, 9), 0}, words),
	} {
		if id, err := findFunction(data, "wanted"); err == nil || errors.Is(err, errNoFunction) {
			t.Errorf("%s: found %d, %v", name, id, err)
		}
	}
}

// Whatever the sections say, nothing is read beyond the data.
func FuzzFindFunction(f *testing.F) {
	f.Add(btf([]uint32{1, kindOf(btfFunc, 1), 6}, "\x00wanted\x00"))
	f.Add(btf([]uint32{0, kindOf(btfStruct, 9), 0}, "\x00wanted\x00"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = findFunction(data, "wanted")
	})
}
