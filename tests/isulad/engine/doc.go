// Package engine is a small container engine that calls a shim exactly as
// iSulad does: the same program arguments, files, ttrpc frames and order of
// calls, and nothing that iSulad does not do. It exists so that the runtime
// can be held to iSulad's contract without iSulad.
//
// What iSulad leaves out is left out here too: no events, no Connect, no
// CloseIO, no Delete of an exec, no rootfs mounts and no options in Create, no
// delete call of the shim's program, no end of a shim that died.
//
//	         Create              Start                     exit, or
//	(files) --------> [created] -------> [running|paused] -----------> [stopped]
//	                      |     fails                       Restore         |
//	                      +-------------------------------------------------+
//	                              Start again, or Remove
//
// An exit takes iSulad's own way: a monitor calls Wait and writes the code
// into the container's exit FIFO; a supervisor reads it there, sees by signal
// 0 that nothing is left, calls Delete and Shutdown, and unmounts. Engines
// before v2.1.3 have no monitor (Options.NoMonitor): there the shim writes.
package engine
