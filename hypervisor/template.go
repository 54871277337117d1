package hypervisor

import (
	"context"
	"os"
)

// Template is a machine that was saved (Saver), for others to go on from. A
// machine that is launched from one has its Spec, but for ID, Memory, Jail,
// NetworkNamespace and ConsoleLine. Its guest goes on where it was: what it
// holds in memory, secrets included, is the same in all that come from it.
type Template struct {
	// Devices are those that the machine had when it was saved, in the order
	// in which they were attached. The new machine has them from its start.
	Devices []Device
	// Memory and State are files open for reading, State at its start. They
	// stay the caller's, and the monitor never gets Memory: the new machine
	// has a copy of it.
	Memory, State *os.File
	// MemorySum is memfile.Sum of Memory. The copy is checked against it.
	MemorySum uint32
}

// Saver is the part of a VM that makes a Template of it. A monitor that cannot
// fails with errdefs.ErrNotImplemented.
type Saver interface {
	// Save pauses the machine and writes to state all of it but its memory,
	// which is in the file that Spec.Memory names (MemoryBacking.File) when
	// the machine has been stopped. vhost devices must have been detached
	// before. state stays the caller's. The machine is of no more use then.
	Save(ctx context.Context, state *os.File) error
}
