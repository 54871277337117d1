package virtcontainers

import "time"

// Exit statuses that do not come from the process itself.
const (
	// ExitKilled is a process that the sandbox's end killed: 128 + SIGKILL.
	ExitKilled = 137
	// ExitLost is a process whose real status cannot be known: the guest is
	// gone or does not answer.
	ExitLost = 255
)

// Exit is the end of one process.
type Exit struct {
	ContainerID string
	// ExecID is empty for the container's init.
	ExecID string
	// PID is the host's process id of the container's stand-in.
	PID int
	// Status is the process's own exit status or 128 + signal, or one of the
	// constants above.
	Status uint32
	At     time.Time
}

// Observer learns what happens in a sandbox. Its methods must not block, but for Ending.
type Observer interface {
	// Ending is called before a container's waiters are woken. It may wait, for a
	// bounded time, until what engines read when a container has ended is written.
	Ending(containerID string)
	// Exited is called once for each process that was created in the guest,
	// after its waiters were woken.
	Exited(Exit)
	// OutOfMemory is called when the guest kernel's OOM killer killed a process
	// in a container.
	OutOfMemory(containerID string)
}
