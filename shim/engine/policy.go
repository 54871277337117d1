package engine

import "time"

// The namespaces of engines with their own policy. containerd's are chosen
// by its users; any other name is containerd's.
const (
	// ISulad is iSulad's only namespace.
	ISulad = "isula"
	// CommandLine is the namespace of kata-runtime, as an OCI runtime and
	// without an engine.
	CommandLine = "katabox-cli"
)

// execKept is how long an exec that has ended is kept for an engine that never
// deletes one: its Wait may come late.
const execKept = time.Minute

// Policy is what a shim does differently for one kind of engine. The zero
// value is containerd's.
type Policy struct {
	// SweepOnStart: the engine never calls "delete", so "start" removes what
	// killed shims left.
	SweepOnStart bool
	// KeepExecs is how long an exec is kept after its end; 0 keeps it until
	// its Delete.
	KeepExecs time.Duration
	// ReadersStay: the engine opens its ends of the stdio FIFOs before Create
	// and opens none again. Output whose reader is gone is dropped instead of
	// waiting for another reader.
	ReadersStay bool
	// PipesBreak: a reader of the output that is gone ends the process by
	// SIGPIPE, as in a shell's pipeline. An engine that may be restarted must not
	// do that to its containers.
	PipesBreak bool
	// CgroupV1Stats: the engine reads cgroup v1 metrics on every host, with
	// iSulad's names of block I/O operations.
	CgroupV1Stats bool
	// WaiterOwnsProcess: each process has one caller that waits for it, and
	// which stands for it on the host. When that caller's connection ends
	// before the process does, the process is killed.
	WaiterOwnsProcess bool
}

// For returns the policy for the engine that uses the namespace.
func For(namespace string) Policy {
	switch namespace {
	case ISulad:
		return Policy{SweepOnStart: true, KeepExecs: execKept, ReadersStay: true, CgroupV1Stats: true}
	case CommandLine:
		return Policy{ReadersStay: true, PipesBreak: true, WaiterOwnsProcess: true}
	}
	return Policy{}
}
