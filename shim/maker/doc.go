// Package maker is the process that makes the template that a pod did not find:
// this program again, started by the pod's shim when the pod runs.
//
//	shim of the pod that missed it          maker
//	  | claims the store's lock
//	  | -- lock as its third file ---------> leaves the pod's cgroups, lowers its own
//	  | (closes its own)                     priority, enters its own cgroup
//	  |                                      boots a guest, saves it, ends
//	  | <-- exit ---------------------------
//	logs how it went, if it still runs
//
// The maker shares nothing with the pod: it has its own session and other
// cgroups, no inherited file but the lock, and it continues when shim, pod and
// engine end. When it ends, the kernel releases the lock and kills its QEMU; a
// killed maker leaves one directory in the store, which the next maker removes.
package maker
