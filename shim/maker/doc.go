// Package maker has the processes that a shim starts for the pods to come: this program
// again, in the background. They share nothing with the pod, and continue when shim, pod
// and engine end.
//
// The maker makes a missing template; the shim of the pod that found none starts it when
// the pod runs.
//
//	shim of the pod                         maker
//	  | claims the store's lock
//	  | -- lock as its third file ---------> leaves the pod's cgroups, lowers its own
//	  | (closes its own)                     priority, enters its own cgroup
//	  |                                      boots a guest, saves it, ends
//	  | <-- exit ---------------------------
//	logs the result, if it still runs
//
// It has its own session and cgroup, and inherits no file but the lock. When it
// ends, the kernel releases the lock and kills its QEMU. A killed maker leaves one
// directory in the store, which the next maker removes.
//
// The keeper inherits a template's sealed memory, in place of the lock, from the shim that
// has copied it, and lends it to later pods (factory.Store.Keep). A killed keeper leaves a
// note in the template's directory, which the next pod removes.
package maker
