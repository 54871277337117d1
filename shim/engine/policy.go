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
	// crio is the namespace of CRI-O's VM runtimes, which is containerd's default
	// as well: CRI-O has no address.
	crio = "default"
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
	// EndedTakesSignals: a signal to a process that has ended is no error. The
	// engine takes any error of its stop for a failed one.
	EndedTakesSignals bool
	// OOMFile: the engine reads no events. A file "oom" in the bundle says that
	// the container ran out of memory.
	OOMFile bool
	// WaiterOwnsProcess: each process has one caller that waits for it, and
	// which stands for it on the host. When that caller's connection ends
	// before the process does, the process is killed.
	WaiterOwnsProcess bool
}

// For returns the policy for the engine that uses the namespace, and whose own
// gRPC socket is address, which is "" for engines that have none.
func For(namespace, address string) Policy {
	switch {
	case namespace == ISulad:
		return Policy{SweepOnStart: true, KeepExecs: execKept, ReadersStay: true, CgroupV1Stats: true}
	case namespace == CommandLine:
		return Policy{ReadersStay: true, PipesBreak: true, WaiterOwnsProcess: true}
	case namespace == crio && address == "":
		return Policy{SweepOnStart: true, EndedTakesSignals: true, OOMFile: true}
	}
	return Policy{}
}
