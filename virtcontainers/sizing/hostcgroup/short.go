package hostcgroup

// Short has the limits that leave no room for a VM in the pod's cgroup: of memory in
// bytes, and of threads. 0 is a limit that does.
type Short struct{ Memory, Threads uint64 }

// short compares a VM with the limits above the pod's cgroup in one hierarchy; its own are
// SetBound's. The VM's threads count there with v2 alone: QEMU ends when it cannot start
// one.
func (l Limits) short(vm VM, unified bool) (short Short) {
	if l.Memory < vm.Memory {
		short.Memory = l.Memory
	}
	if unified && l.Threads < vm.Threads {
		short.Threads = l.Threads
	}
	return short
}
