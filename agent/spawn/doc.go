// Package spawn starts a process in the namespaces and the cgroup of another
// process, as an exec in a container needs it, without an intermediate program.
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
// Between clone and execve no Go code can run: that part is C (spawn.c), which
// makes system calls and touches nothing but the memory prepared for it. It
// reports a step that fails through that memory.
//
// The clones share the agent's memory and are seen by the container's processes.
// The agent is therefore not dumpable (prctl(2), PR_SET_DUMPABLE), which keeps
// everything without CAP_SYS_PTRACE from attaching to them, and they have none
// of the agent's files.
//
// It needs Linux 5.9 (setns with a pidfd, CLONE_INTO_CGROUP, close_range).
package spawn
