// Package engine is a small container engine that calls a shim exactly as
// iSulad does: the same program arguments, files, ttrpc frames and order of
// calls, and nothing that iSulad does not do. It tests the runtime against
// iSulad's contract without iSulad.
//
// Like iSulad it has no events, no Connect, no CloseIO, no Delete of an exec,
// no rootfs mounts and no options in Create, no delete call of the shim's
// program, no end of a shim that died.
//
//	         Create              Start                     exit, or
//	(files) --------> [created] -------> [running|paused] -----------> [stopped]
//	                      |     fails                       Restore         |
//	                      +-------------------------------------------------+
//	                              Start again, or Remove
//
// Exits are handled as in iSulad: a monitor calls Wait and writes the code into
// the container's exit FIFO; a supervisor reads it there, checks by signal 0
// that nothing is left, calls Delete and Shutdown, and unmounts. Engines before
// v2.1.3 have no monitor (Options.NoMonitor): there the shim writes.
package engine
