// Package container runs a container without an engine above it: the process
// of "kata-runtime run" is the engine, for as long as its container lives.
//
//	run ── image, directory, network, specification ── shim: Create, Start
//	 │                                                       │
//	 └── stdio, signals, log <── exit <── Wait ──────────────┘
//
//	starting ──> running ──> exited ──> (removed)
//	    │            └─────> dead: its process was killed; Remove cleans up
//	    └──> nothing: a run that fails before the start leaves nothing
//
// A container is a directory of the store, which is the shim's bundle too. Its
// record says which process runs it. Other processes (exec, logs, stop, rm) find
// the shim by the bundle; they leave the end and what follows it to that
// process. If it is killed, the kernel ends its network program, and the shim
// ends the container when it sees the connection end.
package container
