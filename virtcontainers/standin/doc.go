// Package standin gives each container of a pod a process on the host, whose
// pid engines get. A container's own processes are in the guest, and engines
// need a pid that is alive on the host, leads to the pod's network namespace,
// and does no harm.
//
// A stand-in is a static program of a few hundred bytes (program.go) that
// sleeps. It is in the cgroup that the engine named for the container
// (cgroup.go). It has no capabilities and
//
//	namespace   is
//	network     the pod's
//	mount       its own; the root is a view of the container's root file
//	            system (view.go), or an empty directory
//	PID, IPC,   its own, which tell containers apart: an engine that wants to
//	UTS         join container X's names /proc/<pid of X>/ns/pid
//
// One thread for each pod (Host) lives in an empty mount namespace and starts
// the pod's stand-ins. The kernel kills them when that thread ends, and so also
// when the shim does.
//
//	Host.Start --> [running] --SIGKILL by any process, or End--> [ended]
//	                   |
//	                   +-- any other signal is reported (Process.Signals)
package standin
