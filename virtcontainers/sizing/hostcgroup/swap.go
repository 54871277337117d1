package hostcgroup

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// swapFile has a v2 cgroup's limit of swap. Its parent may not have the controller on, and
// the kernel may count no swap (swapaccount=0): then there is none.
const swapFile = "memory.swap.max"

// limitSwap limits the swap of each of the pod's cgroups: the guest's memory is charged to
// whichever of the VM and the shim touches it first. A spare's memory is charged to the
// group of all spares once a pod has claimed it, so that group has the limit of spares, too.
//
// With v1 there is no such limit: memory.memsw.limit_in_bytes is for memory and swap
// together, and below it the kernel swaps out any memory when the host is short of it
// (Documentation/admin-guide/cgroup-v1/memory.rst, "Swap Extension").
func (p place) limitSwap(most uint64) error {
	if !p.unified {
		return nil
	}
	dirs := p.dirs()
	if group := filepath.Dir(p.overhead); p.overhead != "" && group != p.dir(overheadDir) {
		dirs = append(dirs, group)
	}
	var errs []error
	for _, dir := range dirs {
		err := write(filepath.Join(dir, swapFile), resource.SwapText(most))
		if err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("set %s to %s: %w", swapFile, resource.SwapText(most), err))
		}
	}
	return errors.Join(errs...)
}

// startWithoutSwap limits the swap of new cgroups to none. What the kernel refuses is an
// error only if the pod must be in its own cgroup (Options.Only), as in SetPlace's callers.
func (p place) startWithoutSwap() error {
	err := p.limitSwap(0)
	if err != nil && p.overhead != "" {
		log.L.WithError(err).Warn("the host may swap out the pod's memory")
		return nil
	}
	return err
}
