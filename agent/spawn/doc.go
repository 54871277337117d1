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
// Two clones, because setns(2) moves only the later children into a PID
// namespace. The helper's child is made the agent's (CLONE_PARENT).
//
// Between clone and execve no Go code can run: that part is C (spawn.c and
// process.c), which makes system calls and touches nothing but the memory prepared
// for it. It reports a step that fails through that memory.
//
// A first process waits for its start, so it is a fork with its own memory, and
// takes orders and reports over a socket (init.c):
//
//	agent ──clone3──> init: proc, cgroup ──Enter──> user, capabilities, program ──Execute──> execve
//
// What both kinds set up in the process is process.c.
//
// The clones of an exec share the agent's memory and are seen by the container's processes.
// The agent is therefore not dumpable (prctl(2), PR_SET_DUMPABLE), which keeps
// everything without CAP_SYS_PTRACE from attaching to them, and they have none
// of the agent's files.
//
// It needs Linux 5.9 (setns with a pidfd, CLONE_INTO_CGROUP, close_range).
package spawn
