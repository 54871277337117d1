package hypervisor

import (
	"context"

	"github.com/katabox/katabox/hypervisor/memfile"
)

// Pauser is the part of a VM that stops it for a while. A VM without that
// ability returns errdefs.ErrNotImplemented.
type Pauser interface {
	// Pause stops the guest's CPUs, and its devices with what they have begun;
	// Resume continues it. Then nothing but the VMM itself uses the guest's
	// memory.
	Pause(ctx context.Context) error
	// MemoryParts opens the machine's memory: the unnamed files that are its, what
	// was plugged included, and what it has changed of its template's. The first
	// part is of the boot memory. Files have the VMM's rights, and the content is
	// what the VMM makes of it; the caller closes the parts. It fails with
	// errdefs.ErrFailedPrecondition for memory of any other kind: of huge pages,
	// in a directory, or preallocated.
	MemoryParts(ctx context.Context) ([]memfile.Memory, error)
}
