// The part of a start between clone(2) and execve(2). Both clones share the
// agent's memory, and the thread that starts them is suspended until they have
// executed a program or exited (CLONE_VM, CLONE_VFORK), so they report through
// memory. Only those functions of libc that are plain system calls may be used
// here: setuid(3) would change every thread of the agent, and malloc(3) may find
// its lock held by a thread that does not exist here.

#define _GNU_SOURCE
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/prctl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

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

enum { STACK_SIZE = 16384, SIGNAL_MASK_SIZE = 8, EXIT_FAILED = 255 };

// A start in progress.
struct run {
	const struct spawn_plan *plan;
	struct spawn_result *result;
	char helper_stack[STACK_SIZE] __attribute__((aligned(16)));
	char process_stack[STACK_SIZE] __attribute__((aligned(16)));
};

// The exit status is seen only when execve(2) itself has failed.
static void fail(struct run *run)
{
	run->result->error = errno;
	for (;;)
		syscall(SYS_exit_group, EXIT_FAILED);
}

static void begin(struct run *run, enum spawn_step step) { run->result->step = step; }

static void check(struct run *run, long result)
{
	if (result < 0)
		fail(run);
}

// clone3 calls body in the clone, on the stack given. libc has no function for
// clone3(2), and its clone(2) takes no cgroup.
static long clone3(struct clone_arguments *arguments, void (*body)(struct run *), struct run *run)
{
	long result;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "mov %[run], %%rdi\n\t"
			 "call *%[body]\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_clone3), "D"(arguments), "S"(sizeof *arguments), [body] "r"(body), [run] "r"(run)
			 : "rcx", "r11", "memory");
	if (result < 0) {
		errno = -result;
		return -1;
	}
	return result;
}

static void write_oom_score(struct run *run)
{
	size_t length = 0;

	begin(run, STEP_OOM_SCORE);
	if (!run->plan->oom_score_adj)
		return;
	while (run->plan->oom_score_adj[length])
		length++;
	int fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	check(run, fd);
	check(run, syscall(SYS_write, fd, run->plan->oom_score_adj, length));
	syscall(SYS_close, fd);
}

// The limits are set before the namespaces are joined: raising one requires a
// capability in the initial user namespace.
static void set_rlimits(struct run *run)
{
	begin(run, STEP_RLIMITS);
	for (int i = 0; i < run->plan->rlimit_count; i++) {
		struct spawn_rlimit *limit = &run->plan->rlimits[i];
		struct {
			uint64_t soft, hard;
		} value = {limit->soft, limit->hard};
		check(run, syscall(SYS_prlimit64, 0, limit->resource, &value, NULL));
	}
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

static void start_session(struct run *run)
{
	begin(run, STEP_SESSION);
	check(run, syscall(SYS_setsid));
	begin(run, STEP_KEYRING);
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, run->plan->keyring) < 0 && errno != ENOSYS)
		fail(run);
	begin(run, STEP_TERMINAL);
	if (run->plan->terminal)
		check(run, syscall(SYS_ioctl, 0, TIOCSCTTY, 0));
}

// A non-root process must be able to open its own /dev/stdout. fchown(2) fails on
// a read-only file system, and if the old or the new owner has no id in the user
// namespace; set_user reports the latter.
static void own_stdio(struct run *run)
{
	begin(run, STEP_OWN_STDIO);
	for (int fd = 0; fd < 3; fd++) {
		struct stat info;

		check(run, syscall(SYS_fstat, fd, &info));
		if (info.st_uid == run->plan->uid || (S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3)))
			continue;
		if (syscall(SYS_fchown, fd, run->plan->uid, -1) < 0 && errno != EPERM && errno != EROFS && errno != EINVAL)
			fail(run);
	}
}

static void limit_bounding_set(struct run *run)
{
	const struct spawn_capabilities *set = run->plan->capabilities;

	begin(run, STEP_BOUNDING);
	for (int i = 0; set && i <= set->last; i++) {
		if (!(set->bounding >> i & 1))
			check(run, syscall(SYS_prctl, PR_CAPBSET_DROP, i, 0, 0, 0));
	}
}

static void set_user(struct run *run)
{
	const struct spawn_plan *plan = run->plan;

	begin(run, STEP_GROUPS);
	// A user namespace's mapping may forbid it (user_namespaces(7), setgroups).
	if (syscall(SYS_setgroups, plan->group_count, plan->groups) < 0 &&
	    !(errno == EPERM && plan->namespaces & CLONE_NEWUSER))
		fail(run);
	begin(run, STEP_GID);
	check(run, syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid));
	begin(run, STEP_UID);
	check(run, syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid));
}

// The working directory may be one that only the user can enter, on a file
// system of the user's, or one that only root can: both are tried.
static void enter_directory_and_set_user(struct run *run)
{
	char name[4096];

	begin(run, STEP_DIRECTORY);
	int denied = syscall(SYS_chdir, run->plan->directory) < 0;
	if (denied && errno != EACCES && errno != EPERM)
		fail(run);
	limit_bounding_set(run);
	begin(run, STEP_KEEP_CAPS);
	check(run, syscall(SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0));
	set_user(run);
	begin(run, STEP_DIRECTORY);
	if (denied)
		check(run, syscall(SYS_chdir, run->plan->directory));
	begin(run, STEP_DIRECTORY_OUTSIDE);
	check(run, syscall(SYS_getcwd, name, sizeof name));
	if (name[0] != '/') { // getcwd(2): "(unreachable)" comes before a path outside the root
		errno = ENOENT;
		fail(run);
	}
	begin(run, STEP_KEEP_CAPS);
	check(run, syscall(SYS_prctl, PR_SET_KEEPCAPS, 0, 0, 0, 0));
}

static void set_capabilities(struct run *run)
{
	const struct spawn_capabilities *set = run->plan->capabilities;

	if (!set)
		return;
	begin(run, STEP_CAPABILITIES);
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];
	for (int i = 0; i < 2; i++) {
		data[i].effective = set->effective >> 32 * i;
		data[i].permitted = set->permitted >> 32 * i;
		data[i].inheritable = set->inheritable >> 32 * i;
	}
	check(run, syscall(SYS_capset, &header, data));
	begin(run, STEP_AMBIENT);
	check(run, syscall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
	for (int i = 0; i <= set->last; i++) { // one that is not inheritable is not raised, as with runc
		if (set->ambient >> i & 1)
			syscall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0);
	}
}

// find_program returns the program's path. It searches in the namespaces, and
// with the credentials, in which the program will be executed.
static char *find_program(struct run *run)
{
	char *path;

	begin(run, STEP_FIND);
	errno = ENOENT;
	for (int i = 0; (path = run->plan->paths[i]); i++) {
		struct stat info;

		run->result->path = i;
		begin(run, STEP_FIND);
		if (syscall(SYS_newfstatat, AT_FDCWD, path, &info, 0) < 0)
			continue;
		begin(run, STEP_ACCESS);
		if (S_ISDIR(info.st_mode))
			errno = EISDIR;
		else if (syscall(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS) == 0)
			return path;
	}
	fail(run);
	return NULL;
}

static void execute(struct run *run)
{
	sigset_t none;
	char *path = find_program(run);

	begin(run, STEP_EXECUTE);
	sigemptyset(&none);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, SIGNAL_MASK_SIZE);
	check(run, syscall(SYS_execve, path, run->plan->argv, run->plan->envp));
}

static void be_process(struct run *run)
{
	start_session(run);
	own_stdio(run);
	if (run->plan->umask >= 0)
		syscall(SYS_umask, run->plan->umask);
	enter_directory_and_set_user(run);
	set_capabilities(run);
	begin(run, STEP_NO_NEW_PRIVS);
	if (run->plan->no_new_privs)
		check(run, syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	execute(run);
}

static void be_helper(struct run *run)
{
	struct clone_arguments arguments = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_PARENT | CLONE_PARENT_SETTID,
		.parent_tid = (uintptr_t)&run->result->process,
		.stack = (uintptr_t)run->process_stack,
		.stack_size = sizeof run->process_stack,
	};

	write_oom_score(run);
	set_rlimits(run);
	join_namespaces(run);
	set_stdio(run);
	begin(run, STEP_CLONE_PROCESS);
	check(run, clone3(&arguments, be_process, run));
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
	struct run run;
	struct clone_arguments arguments = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)run.helper_stack,
		.stack_size = sizeof run.helper_stack,
	};
	sigset_t all, before;

	run.plan = plan;
	run.result = result;
	if (plan->cgroup >= 0) {
		arguments.flags |= CLONE_INTO_CGROUP;
		arguments.cgroup = plan->cgroup;
	}
	begin(&run, STEP_CLONE);
	// No signal handler of Go's may run in a clone: it would use the agent's memory.
	sigfillset(&all);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, SIGNAL_MASK_SIZE);
	long helper = clone3(&arguments, be_helper, &run);
	if (helper < 0)
		result->error = errno;
	else
		settle(helper, result->process);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGNAL_MASK_SIZE);
}
