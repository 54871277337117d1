// Package maker is the process that makes a template which a pod has missed: this
// program once more, started by the pod's shim when the pod runs.
//
//	shim of the pod that missed it          maker
//	  | claims the store's lock
//	  | -- lock as its third file ---------> leaves the pod's cgroups, lowers its own
//	  | (closes its own)                     priority
//	  |                                      boots a guest, saves it, ends
//	  | <-- exit ---------------------------
//	logs how it went, if it still runs
//
// Nothing of the maker is the pod's: it has its own session and other cgroups, no file
// but the lock, and goes on when shim, pod and engine end. The kernel releases the
// lock when it ends, and kills its QEMU; what else is left of one that was killed
// is in one directory of the store, which the next maker removes.
package maker
