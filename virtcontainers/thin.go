package virtcontainers

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/memfile"
)

// thin gives back the memory of a paused machine that is only zeros: QEMU has the
// host allocate all of it to read or write a machine's state. Memory that is not in
// files stays.
func thin(ctx context.Context, vm hypervisor.VM) {
	parts, err := vm.MemoryParts(ctx)
	if errdefs.IsFailedPrecondition(err) {
		return
	}
	var freed uint64
	for _, part := range parts {
		var n uint64
		if f, ok := part.(memfile.File); ok && err == nil {
			n, err = memfile.Thin(ctx, f.File)
		}
		freed += n
		err = errors.Join(err, part.Close())
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("the guest has more of the host's memory than it uses")
	}
	log.G(ctx).WithField("bytes", freed).Debug("memory without content given back")
}
