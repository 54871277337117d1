package hypervisor

import (
	"context"
	"os"
)

// Pauser is the part of a VM that stops it for a while. A VM without that
// ability returns errdefs.ErrNotImplemented.
type Pauser interface {
	// Pause stops the guest's CPUs, and its devices with what they have begun;
	// Resume continues it. Then nothing but the VMM itself uses the guest's
	// memory.
	Pause(ctx context.Context) error
	// MemoryFiles opens the unnamed files that are the machine's memory, what
	// was plugged included. They have the VMM's rights, and their content is
	// what the VMM makes of it; the caller closes them. It fails with
	// errdefs.ErrFailedPrecondition for memory of any other kind: private, of
	// huge pages, in a directory, or preallocated.
	MemoryFiles(ctx context.Context) ([]*os.File, error)
}
