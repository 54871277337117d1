// Package container runs a container without an engine: the process of
// "kata-runtime run" acts as the engine, as long as its container lives.
//
//	run ── image, directory, network, specification ── shim: Create, Start
//	 │                                                       │
//	 └── stdio, signals, log <── exit <── Wait ──────────────┘
//
//	starting ──> running ──> exited ──> (removed)
//	    │            └─────> dead: its process was killed; Remove cleans up
//	    └──> nothing: a run that fails before the start leaves nothing
//
// A container is a directory of the store, which is also the shim's bundle. Its
// record names the process that runs it. Other processes (exec, logs, stop, rm)
// find the shim by the bundle; they leave the end of the container and the
// cleanup to the process that runs it. If that process is killed, the kernel ends
// its network program, and the shim ends the container when it sees the
// connection end (wait.go).
package container
