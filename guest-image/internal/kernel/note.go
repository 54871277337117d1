package kernel

import "encoding/binary"

// noteXenPhys32Entry is XEN_ELFNOTE_PHYS32_ENTRY: the note with the physical
// address of the PVH entry (Xen public/elfnote.h).
const noteXenPhys32Entry = 18

// xenEntry returns the PVH entry from the notes of a segment, or 0 if no note has
// it. A note is the sizes of name and content, a type, 4 bytes each, then name
// and content, each padded to 4 bytes (gABI, "Note Section").
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
