// Package spawn starts the processes of containers without an intermediate
// program: execs, in the namespaces and the cgroup of another process (Plan), and
// first processes (InitPlan).
//
// libcontainer starts three processes for an exec, the last of them a Go program
// that reads what to do from a pipe. Here the agent clones itself twice with
// shared memory, as posix_spawn(3) does, and the second clone executes the
// program:
//
//	agent ──clone3──> helper ──clone3──> process ──execve──> program
//	  │ waits           │ joins cgroup      │ user, capabilities,
//	  │                 │ and namespaces    │ directory, terminal
//	  └── waits until the program runs or a step has failed ──┘
//
// There are two clones because setns(2) moves only later children into a PID
// namespace. The helper's child becomes the agent's (CLONE_PARENT).
//
// No Go code can run between clone and execve. That part is C (spawn.c and
// process.c), which makes system calls and touches only memory that was prepared
// for it. It reports a failed step through that memory.
//
// A container's first process waits for its start. So it is a fork with its own
// memory, and receives orders and reports over a socket (init.c):
//
//	agent ──clone3──> init: proc, cgroup ──Enter──> user, capabilities, program ──Execute──> execve
//
// process.c has the set-up that both kinds share.
//
// The clones of an exec share the agent's memory and are visible to the
// container's processes. Therefore the agent is not dumpable (prctl(2),
// PR_SET_DUMPABLE), so that only processes with CAP_SYS_PTRACE can attach to them,
// and the clones have none of the agent's files.
//
// It needs Linux 5.9 (setns with a pidfd, CLONE_INTO_CGROUP, close_range).
package spawn
