package hypervisor

import (
	"context"
	"os"
)

// Template is a saved machine (Saver) from which others continue. A machine
// launched from one has its Spec, except for ID, Memory, Jail, NetworkNamespace
// and ConsoleLine. Its guest continues where the saved one stopped: the
// memory's content, secrets included, is the same in all machines from it.
type Template struct {
	// Devices are the saved machine's, in the order in which they were
	// attached. The new machine has them from its start.
	Devices []Device
	// Memory and State are files open for reading, State at its start. The
	// caller owns them, and the VMM never gets Memory: the new machine has a
	// copy of it.
	Memory, State *os.File
	// MemorySum is memfile.Sum of Memory. The copy is checked against it.
	MemorySum uint32
	// Sealed, if not nil, is used in place of Memory and MemorySum: a memfd
	// with the same content that cannot be changed (memfile.Fill). The machine
	// has a private mapping of it: pages that it does not change are shared with
	// other machines, and OwnerOf(vm) is not nil. The caller owns the file. It
	// needs Spec.Jail.
	Sealed *os.File
	// Filled, if not nil, blocks until Sealed has its content and cannot be
	// changed any more, or returns why it never will. It is called once, when
	// the VMM has mapped the file and has not read it: the VMM starts while the
	// file is filled.
	Filled func() error
}

// Saver is the part of a VM that makes a Template of it. A VM without that
// ability returns errdefs.ErrNotImplemented.
type Saver interface {
	// Save pauses the machine and writes to state everything but its memory.
	// The memory is in the file that Spec.Memory names (MemoryBacking.File)
	// once the machine has been stopped. vhost devices must have been detached
	// first. The caller owns state. Afterwards the machine can only be stopped.
	Save(ctx context.Context, state *os.File) error
}
