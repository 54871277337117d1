// Package harness runs a real containerd that touches nothing of the host's
// own: its root, state, sockets, FIFOs and shims live under one short temporary
// directory. On top of it are the few objects that the demo, the suites and the
// benchmark speak of (Daemon, Pod, Container, Process), and the check that
// nothing is left behind.
//
// A Daemon is bound to one containerd release and one runtime, runc or kata:
// whatever is written against the harness runs with both, so runc says what is
// right where a test expects something.
//
//	Start ──> running ──(NewPod, Run, ...)──> Settled: nothing of any pod left
//	             └──────────> Stop: daemon gone, directory gone, host as before
//
// What belongs to a Daemon is found by its tag: a word in the environment of
// containerd (inherited by shims and what they start) and the prefix of every
// container id. So two harnesses on one machine do not accuse each other. The
// process that uses the harness becomes a subreaper: an orphan of a killed shim
// stays its descendant and cannot hide.
package harness
