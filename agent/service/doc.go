// Package service implements the host's APIs: containerd's Task service for the
// pod's containers and processes, and Guest for what a virtual machine adds. It
// holds their states and decides; agent/container, agent/stream and agent/guest
// do the work.
//
// The states of a process; a container is its init process and its execs:
//
//	          Create                Start              exits
//	creating ────────> created ───> starting ─> running ────> stopped ──Delete──> (gone)
//	                      │  (exec: Exec)          │ Pause / Resume   ▲
//	                      └────────────────────────┴── killed ────────┘
//
// A call that a state does not allow fails with FailedPrecondition and names
// the process and its state. Each container and each process has its own
// mutex, and no mutex is held while the kernel or libcontainer works.
//
// Storages belong to a container, mounted and unmounted with it, or to the pod
// (storages.go): mounted once, however many containers request them, until the
// guest ends.
//
// Order of events: an OOM kill comes before the exit it caused, the exits of
// execs before that of their container's init, and every exit exactly once.
package service
