package api

// The bytes of an output come in frames if the host offers a file for it
// (StreamOpen.output_file) and the agent takes the offer (StreamOpened.framed). A frame
// begins with a byte that says what it is:
//
//   - FrameInline: a big-endian uint32 length above 0 follows, and that many bytes. A
//     connection may end within them.
//   - FrameSlot: the bytes are in the next slot of the file.
//
// The file has OutputSlots slots of OutputSlotSize bytes, which are used in turn. A
// slot begins with a big-endian uint32 length of 1 to OutputSlotData; that many bytes of the output
// follow. When the host has read them it sends a byte, of any value, and the agent may
// write to the slot again.
//
// So a large block is copied by the share's server from where the agent has read it
// to: through a vsock socket the guest's kernel would copy it once more, allocate
// memory for it, and be interrupted for every 64 KiB (docs/adr/0064).
const (
	FrameInline = 0
	FrameSlot   = 1

	// InlineHeader is the length of an inline frame's kind and length.
	InlineHeader = 5

	OutputSlots    = 2
	OutputSlotSize = 1 << 20
	// SlotHeader is the length of a slot's length.
	SlotHeader = 4
	// OutputSlotData is how much of an output a slot can have. With the header it is a
	// page less than a slot, because a request of FUSE has at most 256 pages, and an
	// agent's data begins with a page.
	OutputSlotData = OutputSlotSize - 4<<10
)
