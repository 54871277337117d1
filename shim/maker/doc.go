// Package maker is the process that makes a missing template. It is this program
// again; the shim of the pod that found none starts it when the pod runs.
//
//	shim of the pod                         maker
//	  | claims the store's lock
//	  | -- lock as its third file ---------> leaves the pod's cgroups, lowers its own
//	  | (closes its own)                     priority, enters its own cgroup
//	  |                                      boots a guest, saves it, ends
//	  | <-- exit ---------------------------
//	logs the result, if it still runs
//
// The maker shares nothing with the pod: it has its own session and cgroup, and
// inherits no file but the lock. It continues when shim, pod and engine end. When it
// ends, the kernel releases the lock and kills its QEMU. A killed maker leaves one
// directory in the store, which the next maker removes.
package maker
