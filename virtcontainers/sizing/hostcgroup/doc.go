// Package hostcgroup gives a pod its cgroups on the host: one that the
// engine's parent limits and measures, and, unless everything of the pod is to
// be in that one, an overhead cgroup without limits.
//
//	<parent>/kata_<name>         what the pod is charged for
//	/kata_overhead/<name>        the rest
//
// The parent is the one of the cgroup that the engine chose for the sandbox's
// own container (OCI's linux.cgroupsPath); the prefix is Kata Containers', and the
// name is the pod's on the host (Options.Name). The
// pod's CPUs, memory nodes and weight are set here; its limits of CPU time and
// memory are the parent's, which are the kubelet's.
//
// Where each part of a pod is:
//
//	                          only    v1                       v2
//	shim, virtiofsd           pod     overhead                 overhead
//	the VM's vCPU threads     pod     pod (cpu, cpuacct,       with the process
//	                                  cpuset)
//	the VM's memory           pod     pod, if it fits          with the process
//	the rest of the process   pod     overhead                 pod, if it fits
//
// "It fits" when no memory limit above the pod's cgroup is less than what the
// VM can come to use: a VM beyond a limit would be killed with the whole pod,
// for what its containers are allowed. Otherwise it is the overhead's.
//
// If the engine names a cgroup for the shim (Existing), the shim and virtiofsd are
// in that one, and this package never removes it.
//
// A Container is the cgroup that the engine chose for one container. It holds the
// process that stands for the container on the host, and shows its memory limit.
//
// A Cgroup is made in steps, so that what a crash leaves is known before:
//
//	New --> [planned] --Make--> [made] --Release--> [left] --Remove--> (nothing)
//	          Dirs                Add, AddVM, SetPlace
package hostcgroup
