package api

// Vsock ports on which the agent listens.
const (
	// PortRPC serves ttrpc: containerd.task.v3.Task and Guest.
	PortRPC = 1024
	// PortLog gives the agent's log to one reader at a time: JSON objects, one
	// per line, at most MaxLogLine bytes each.
	PortLog = 1025
	// PortDebug takes connections that each start a process in the guest itself
	// (stream.go), where the kernel command line has agent.debug_console. It is
	// Kata Containers' port for that.
	PortDebug = 1026
	// PortStream takes stdio connections (stream.go).
	PortStream = 1027
	// PortForward takes connections that are forwarded to a TCP port or a
	// container's UNIX socket in the guest (stream.go).
	PortForward = 1028
	// PortReverse takes connections over which the agent listens in the guest
	// on behalf of the host (stream.go).
	PortReverse = 1029
	// PortKey takes the host's key (key.go).
	PortKey = 1030
)

// MaxLogLine is the length of the longest log line the host accepts from the
// guest, in bytes; longer ones are truncated.
const MaxLogLine = 16 << 10
