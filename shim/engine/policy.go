package engine

import "time"

// The namespaces of engines with a Policy different from containerd's.
// containerd's users choose its namespaces; any other name is containerd's.
const (
	// ISulad is the only namespace that iSulad uses.
	ISulad = "isula"
	// CommandLine is the namespace of kata-runtime, both as an OCI runtime and
	// without an engine.
	CommandLine = "katabox-cli"
	// crio is the namespace of CRI-O's VM runtimes. It is also containerd's
	// default, but CRI-O passes no address.
	crio = "default"
)

// execKept is how long an exec that has ended is kept for an engine that may never
// delete it: its Wait may come late. iSulad deletes none, and CRI-O none that timed out
// (execContainerCommon in internal/oci/runtime_vm.go).
const execKept = time.Minute

// Policy is what a shim does differently for one kind of engine. The zero value
// is the policy for containerd.
type Policy struct {
	// SweepOnStart: the engine never calls "delete", so "start" removes what
	// killed shims left.
	SweepOnStart bool
	// PatientDelete: the engine waits for "delete" much longer than containerd's
	// 5 s, and its user calls it again after an error.
	PatientDelete bool
	// KeepExecs is how long an exec is kept after its end; 0 keeps it until
	// its Delete.
	KeepExecs time.Duration
	// ReadersStay: the engine opens its ends of the stdio FIFOs before Create and
	// does not open any later. Output whose reader is gone is dropped instead of
	// waiting for another reader.
	ReadersStay bool
	// PipesBreak: when the reader of the output is gone, the process gets
	// SIGPIPE, as in a shell's pipeline. An engine that may be restarted must not
	// do that to its containers.
	PipesBreak bool
	// CgroupV1Stats: the engine reads cgroup v1 metrics on every host, with
	// iSulad's names of block I/O operations.
	CgroupV1Stats bool
	// EndedTakesSignals: a signal to a process that has ended is not an error. The
	// engine treats any error of its stop as a failed stop. Signal 0 is one: by it
	// the engine asks whether the process runs.
	EndedTakesSignals bool
	// OOMFile: the engine reads no events. A file "oom" in its bundle reports
	// that the container ran out of memory.
	OOMFile bool
	// WaiterOwnsProcess: each process has one caller that waits for it and
	// represents it on the host. When that caller's connection ends before the
	// process does, the process is killed.
	WaiterOwnsProcess bool
	// NoPool: callers of the shim differ in cgroups and limits, so that no spare
	// can be kept for the next.
	NoPool bool
}

// For returns the policy for the engine that uses the namespace. address is the
// engine's own gRPC socket, or "" for engines without one.
func For(namespace, address string) Policy {
	switch {
	case namespace == ISulad:
		return Policy{SweepOnStart: true, KeepExecs: execKept, ReadersStay: true, CgroupV1Stats: true}
	case namespace == CommandLine:
		return Policy{ReadersStay: true, PipesBreak: true, WaiterOwnsProcess: true, NoPool: true, PatientDelete: true, OOMFile: true}
	case namespace == crio && address == "":
		return Policy{SweepOnStart: true, KeepExecs: execKept, EndedTakesSignals: true, OOMFile: true}
	}
	return Policy{}
}
