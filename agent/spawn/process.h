// What the two kinds of start have in common: the part of a process's life between
// clone(2) and execve(2). Only those functions of libc that are plain system calls
// may be used there: setuid(3) would change every thread of the agent, and
// malloc(3) may find its lock held by a thread that does not exist in the clone.
#ifndef KATABOX_PROCESS_H
#define KATABOX_PROCESS_H

#include "spawn.h"

#include <errno.h>
#include <signal.h>

#ifndef __x86_64__
#error "guests are amd64"
#endif

// From linux/sched.h, which cannot be included together with sched.h.
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

// struct clone_args of linux/sched.h.
struct clone_arguments {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal;
	uint64_t stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

enum { SIGNAL_MASK_SIZE = 8, EXIT_FAILED = 255 };

// A start in progress.
struct run {
	const struct spawn_plan *plan;
	struct spawn_result *result;
	int control; // the socket that a result is also sent to, or -1
};

// What a clone would inherit from the calling thread, which is Go's.
struct inherited {
	sigset_t signals; // that are blocked
	long timer_slack; // in nanoseconds
};

// shed blocks all signals, because no handler of Go's may run in a clone, where it
// would use the agent's memory, and sets the kernel's usual timer slack. (The agent's
// is another one: package slack.)
void shed(struct inherited *before);
// restore undoes shed, and keeps errno.
void restore(const struct inherited *before);

void begin(struct run *run, enum spawn_step step);
// check fails the start if result, a system call's, is negative.
void check(struct run *run, long result);
void fail(struct run *run) __attribute__((noreturn));
// report sends the result through the control socket.
void report(struct run *run);

void write_oom_score(struct run *run);
// set_rlimits sets all limits but that of processes, which become lowers: a clone is
// refused to a user that has reached it.
void set_rlimits(struct run *run);
// become makes the calling process what the plan says, all but its namespaces,
// cgroup, files and other limits.
void become(struct run *run);
// find_program returns the program's path. It searches in the namespaces, and
// with the credentials, in which the program will be executed.
char *find_program(struct run *run);
// execute returns only if execve(2) has failed.
void execute(struct run *run, char *path);

#endif
