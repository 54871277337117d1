package hypervisor

import (
	"context"

	"github.com/katabox/katabox/hypervisor/memfile"
)

// Pauser is the part of a VM that stops it for a while. A VM without that
// ability returns errdefs.ErrNotImplemented.
type Pauser interface {
	// Pause stops the guest's CPUs, and its devices once their requests have
	// completed. Afterwards only the VMM itself uses the guest's memory. Resume
	// continues the machine.
	Pause(ctx context.Context) error
	// MemoryParts opens the machine's memory: its unnamed files, those of plugged
	// memory included, and the pages of its template that it has changed. The
	// first part is the boot memory. Files are opened with the VMM's privileges,
	// and the VMM decides their content. The caller closes the parts. It fails
	// with errdefs.ErrFailedPrecondition for memory of huge pages, in a directory,
	// or preallocated.
	MemoryParts(ctx context.Context) ([]memfile.Memory, error)
}
