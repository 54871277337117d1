// Package manager is the shim as the engine's program: how an engine starts it,
// finds it, and cleans up after it.
//
//	engine                       containerd-shim-kata-v2
//	  | -- start, in the bundle ---> a short process: reads config.json,
//	  |                              for a pod's service container answers
//	  | <-- address, by dialect ---- with the sandbox's address, else makes
//	  |                              a socket and starts the daemon on it
//	  | == task API (ttrpc) =======> the daemon, one per pod, until Shutdown
//	  | -- delete -----------------> a short process: what a dead shim left
//
// Three dialects of start exist; the caller's input chooses (dialect.go).
// Only the answer ever goes to stdout.
package manager
