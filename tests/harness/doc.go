// Package harness runs a real containerd that is separate from the host's: its
// root, state, sockets, FIFOs and shims live under one short temporary
// directory. On top of it are the few types that the demo, the suites and the
// benchmark use (Daemon, Pod, Container, Process), and the check that nothing
// is left behind.
//
// A Daemon is bound to one containerd release and one runtime, runc or kata:
// everything written against the harness runs with both, so runc validates what
// a test expects.
//
//	Start ──> running ──(NewPod, Run, ...)──> Settled: nothing of any pod left
//	             └──────────> Stop: daemon gone, directory gone, host as before
//
// What belongs to a Daemon is found by its tag: a word in the environment of
// containerd (inherited by shims and what they start) and the prefix of every
// container id. So two harnesses on one machine do not report each other's
// processes as leaks. The process that uses the harness becomes a subreaper: an
// orphan of a killed shim stays its descendant and cannot hide.
//
// With EnvTemplate the daemons of a process share their templates (templates.go).
package harness
