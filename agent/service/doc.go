// Package service implements the host's APIs: containerd's Task service for the
// pod's containers and processes, and Guest for the virtual machine. It holds
// their states and decides which calls are possible; agent/container, agent/stream
// and agent/guest do the work.
//
// The states of a process; a container is its init process and its execs:
//
//	          Create                Start              exits
//	creating ────────> created ───> starting ─> running ────> stopped ──Delete──> (gone)
//	                      │  (exec: Exec)          │ Pause / Resume   ▲
//	                      └────────────────────────┴── killed ────────┘
//
// An exec that is killed or deleted while it is starting is doomed, and so is one that
// starts after the host's deadline: its start fails, and it is ended.
//
// A call that a state does not allow fails with FailedPrecondition and names
// the process and its state. Each container and each process has its own
// mutex, and none is held while the kernel or libcontainer works, but for those whose
// waiters give up with their call (ctxmutex).
//
// Storages belong to a container, mounted and unmounted with it, or to the pod
// (storages.go): mounted once, however many containers request them, until the
// guest ends.
//
// Order of events: an OOM kill comes before the exit that it caused, and the exits
// of execs before that of their container's init. Every exit is reported once.
package service
