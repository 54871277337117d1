package hostcgroup

// Short says which limits leave no room for a VM in the pod's cgroup; 0 stands for one that
// does.
type Short struct {
	// Memory, in bytes, and Threads are such limits.
	Memory, Threads uint64
	// Hugepages is how many bytes of huge pages are missing: their limit often is 0.
	Hugepages uint64
}

// and returns what is short in either of two hierarchies.
func (s Short) and(other Short) Short {
	return Short{max(s.Memory, other.Memory), max(s.Threads, other.Threads), max(s.Hugepages, other.Hugepages)}
}

// short compares a VM with the limits above the pod's cgroup in one hierarchy; its own are
// SetBound's. The VM's threads and huge pages count there with v2 alone: QEMU ends when it
// cannot start a thread, and cannot grow without pages.
func (l Limits) short(vm VM, unified bool) (short Short) {
	if l.Memory < vm.Memory {
		short.Memory = l.Memory
	}
	if unified && l.Threads < vm.Threads {
		short.Threads = l.Threads
	}
	if unified && l.Hugepages < vm.Hugepages {
		short.Hugepages = vm.Hugepages - l.Hugepages
	}
	return short
}
