// A start of a further process in a container. Both clones share the agent's memory,
// and the thread that starts them is suspended until they have executed a program
// or exited (CLONE_VM, CLONE_VFORK), so they report through memory.

#define _GNU_SOURCE
#include "process.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK_SIZE = 16384 };

struct clones {
	struct run run;
	char helper_stack[STACK_SIZE] __attribute__((aligned(16)));
	char process_stack[STACK_SIZE] __attribute__((aligned(16)));
};

// clone3 calls body in the clone, on the stack given. libc has no function for
// clone3(2), and its clone(2) takes no cgroup.
static long clone3(struct clone_arguments *arguments, void (*body)(struct clones *), struct clones *clones)
{
	long result;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "mov %[clones], %%rdi\n\t"
			 "call *%[body]\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_clone3), "D"(arguments), "S"(sizeof *arguments), [body] "r"(body), [clones] "r"(clones)
			 : "rcx", "r11", "memory");
	if (result < 0) {
		errno = -result;
		return -1;
	}
	return result;
}

static void join_namespaces(struct run *run)
{
	begin(run, STEP_NAMESPACES);
	check(run, syscall(SYS_setns, run->plan->target, run->plan->namespaces));
	begin(run, STEP_ROOT);
	if (run->plan->namespaces & CLONE_NEWUSER) {
		check(run, syscall(SYS_setresgid, 0, 0, 0));
		check(run, syscall(SYS_setresuid, 0, 0, 0));
	}
}

// None of the agent's files may be reachable through /proc/self/fd, for instance
// as a working directory (CVE-2024-21626).
static void set_stdio(struct run *run)
{
	begin(run, STEP_STDIO);
	for (int i = 0; i < 3; i++)
		check(run, syscall(SYS_dup3, run->plan->stdio[i], i, 0));
	begin(run, STEP_CLOSE);
	check(run, syscall(SYS_close_range, 3, ~0U, 0));
}

static void be_process(struct clones *clones)
{
	become(&clones->run);
	execute(&clones->run, find_program(&clones->run));
	fail(&clones->run);
}

static void be_helper(struct clones *clones)
{
	struct run *run = &clones->run;
	struct clone_arguments arguments = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_PARENT | CLONE_PARENT_SETTID,
		.parent_tid = (uintptr_t)&run->result->process,
		.stack = (uintptr_t)clones->process_stack,
		.stack_size = sizeof clones->process_stack,
	};

	write_oom_score(run);
	// Before the namespaces are joined: raising a limit requires a capability in
	// the initial user namespace.
	set_rlimits(run);
	join_namespaces(run);
	set_stdio(run);
	begin(run, STEP_CLONE_PROCESS);
	check(run, clone3(&arguments, be_process, clones));
	for (;;)
		syscall(SYS_exit_group, 0);
}

// settle reaps the helper, which has ended. If it was killed, for instance with
// its whole cgroup, its wait for the process was cut short: the process may still
// be using this start's memory.
static void settle(pid_t helper, pid_t process)
{
	int status = 0;

	waitpid(helper, &status, 0);
	if (!WIFSIGNALED(status) || process <= 0)
		return;
	kill(process, SIGKILL);
	waitid(P_PID, process, NULL, WEXITED | WNOWAIT);
}

void spawn(const struct spawn_plan *plan, struct spawn_result *result)
{
	struct clones clones;
	struct clone_arguments arguments = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)clones.helper_stack,
		.stack_size = sizeof clones.helper_stack,
	};
	struct inherited before;

	if (plan->cgroup >= 0) {
		arguments.flags |= CLONE_INTO_CGROUP;
		arguments.cgroup = plan->cgroup;
	}
	clones.run = (struct run){.plan = plan, .result = result, .control = -1};
	begin(&clones.run, STEP_CLONE);
	shed(&before);
	long helper = clone3(&arguments, be_helper, &clones);
	if (helper < 0)
		result->error = errno;
	else
		settle(helper, result->process);
	restore(&before);
}
