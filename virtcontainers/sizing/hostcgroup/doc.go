// Package hostcgroup manages a pod's cgroups on the host: one that the engine's
// parent limits and measures, and, unless the whole pod is to be in that one,
// an overhead cgroup. Both have wide bounds (SetBound), which a well-behaved pod
// does not reach.
//
//	<parent>/kata_<name>         what the pod is charged for
//	/kata_overhead/<name>        the rest
//
// The parent is that of the cgroup which the engine chose for the sandbox's own
// container (OCI's linux.cgroupsPath). The prefix is Kata Containers', and the name
// is the pod's on the host (Options.Name). This package sets the pod's CPUs, memory
// nodes, weight and limit of swap; its limits of CPU time and memory are the parent's,
// which the kubelet sets.
//
// Where the parts of a pod are; "only" is sandbox_cgroup_only:
//
//	                          only    v1                       v2
//	shim, virtiofsd           pod     overhead                 overhead
//	the VM's vCPU threads     pod     pod (cpu, cpuacct,       with the process
//	                                  cpuset)
//	the VM's memory           pod     pod, if it fits          with the process
//	the rest of the process   pod     overhead                 pod, if it fits
//	vhost's kernel threads    with the rest of the process (workers.go)
//
// "It fits" if no memory limit above the pod's cgroup is less than what the VM
// can use, and with v2 no limit of threads or huge pages less than QEMU can need
// (short.go): otherwise the VM, and with it the whole pod, could be killed, or
// could not grow, although its containers stay within their limits. A VM that does
// not fit is charged to the overhead.
//
// If the engine names a cgroup for the shim (Existing), the shim and virtiofsd are
// in it, and this package never removes it.
//
// If the engine names no cgroup for the sandbox's own container, the whole pod is
// in its overhead cgroup. So it has bounds, and is not charged to the engine's
// cgroup.
//
// With v2 another program, such as systemd, can turn off controllers of the pod's
// cgroups; Regain turns them on again (regain.go). Above reads the limits that the
// kubelet and others set above the pod's cgroup (above.go).
//
// A process without a pod has its own cgroup, /kata_overhead/spares/<pid>
// (NewForSpare).
//
// A Container is the cgroup that the engine chose for one container. It holds
// the container's stand-in, and shows its memory limit.
//
// A Cgroup is made in steps, so that its directories can be recorded before a
// crash can leave them:
//
//	New --> [planned] --Make--> [made] --Release--> [left] --Remove--> (nothing)
//	          Dirs                Add, AddVM, SetPlace
package hostcgroup
