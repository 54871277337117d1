package relay

// #include "relay.h"
import "C"

import (
	"os"
	"syscall"
	"unsafe"
)

// Slots are the places of a file through which data goes to a reader, in turn. Each has
// the data's length first, big-endian.
type Slots struct {
	// Count is how many there are, and Size the distance between them in bytes.
	Count int
	Size  int
	// Header is the length of the length, and Data the most data that a slot has.
	Header, Data int
	// Kind is the byte on the socket by which the reader learns of the next slot.
	Kind byte

	used, next int
	block      []byte
}

// Used returns how many slots the reader has not freed, as the last run has seen it.
func (s *Slots) Used() int { return s.used }

// memory returns the room for a slot's header and data. The data begins at a page, so
// that a slot touches no more pages than it must.
func (s *Slots) memory() []byte {
	const page = 4 << 10
	if s.block == nil {
		s.block = make([]byte, s.Header+s.Data+page)
	}
	misplaced := (int(uintptr(unsafe.Pointer(unsafe.SliceData(s.block)))) + s.Header) % page
	return s.block[(page-misplaced)%page:][:s.Header+s.Data]
}

// RunSlots is Run for a socket whose reader takes the data from slots of a file. While slots
// are in use, it does not end for lack of input. ok is false if the file could not be
// written to. The slots are the same for all runs to a socket, of which there is one at a
// time; rest is a part of their memory.
func (r *Relay) RunSlots(from, to syscall.Conn, file *os.File, slots *Slots) (read uint64, rest []byte, ok bool, err error) {
	block := slots.memory()
	err = withFD(file, func(fd C.int) error {
		return r.withEnds(from, to, func(plan *C.struct_relay_plan) {
			var result C.struct_relay_result
			plan.size = C.size_t(slots.Data)
			state := C.struct_relay_slots{
				file: fd, count: C.uint(slots.Count), size: C.size_t(slots.Size), header: C.size_t(slots.Header), kind: C.char(slots.Kind),
				used: C.uint(slots.used), next: C.uint(slots.next),
			}
			C.relay_slots_run(plan, &state, (*C.char)(unsafe.Pointer(unsafe.SliceData(block))), &result)
			slots.used, slots.next = int(state.used), int(state.next)
			read, rest, ok = uint64(result.read), block[slots.Header:][result.from:result.to], state.failed == 0
		})
	})
	return read, rest, ok, err
}
