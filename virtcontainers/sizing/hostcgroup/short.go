package hostcgroup

import "path/filepath"

// Short has the limits that leave no room for a VM in the pod's cgroup: of memory in
// bytes, and of threads. 0 is a limit that does.
type Short struct{ Memory, Threads uint64 }

// shortOf compares a VM with the limits above the pod's cgroup; its own are SetBound's.
// The VM's threads count there with v2 alone: QEMU ends when it cannot start one.
func (p place) shortOf(vm VM) (short Short, err error) {
	above := filepath.Dir(p.pod)
	memory, err := p.memoryLimit(above)
	if err != nil {
		return Short{}, err
	}
	if memory < vm.Memory {
		short.Memory = memory
	}
	if !p.unified {
		return short, nil
	}
	threads, err := p.leastAbove(above, threadsFile)
	if err != nil {
		return Short{}, err
	}
	if threads < vm.Threads {
		short.Threads = threads
	}
	return short, nil
}
