package api

// Vsock ports on which the agent listens.
const (
	// PortRPC serves ttrpc: containerd.task.v3.Task and Guest.
	PortRPC = 1024
	// PortLog gives the agent's log to one reader at a time: JSON objects,
	// one a line, at most MaxLogLine bytes each.
	PortLog = 1025
	// PortStream takes stdio connections (stream.go). 1026 is left free: it
	// is the debug console's port for Kata's users.
	PortStream = 1027
	// PortForward takes connections that go on to a TCP port of the guest's
	// (stream.go).
	PortForward = 1028
	// PortReverse takes connections by which the agent listens in the guest
	// for something on the host (stream.go).
	PortReverse = 1029
)

// MaxLogLine is the length of the longest log line the host accepts from the
// guest, in bytes; longer ones are cut.
const MaxLogLine = 16 << 10
