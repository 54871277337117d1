// A start of a container's first process. It is a fork of the agent, with a copy of
// its memory: it waits, perhaps for minutes, until its container is started, and
// what it shared with the agent meanwhile would be within reach of the container's
// neighbours.

#define _GNU_SOURCE
#include "process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 4, ROOT = 3, EXIT_TERMINATED = 2 };

static void finish(int status)
{
	for (;;)
		syscall(SYS_exit_group, status);
}

// The agent's files are closed at once: what they lead to must end for others while
// this process waits.
static void close_files(const struct spawn_init *init)
{
	if (init->control > 3)
		syscall(SYS_close_range, 3, init->control - 1, 0);
	syscall(SYS_close_range, init->control + 1, ~0U, 0);
}

static void make_mounts(struct run *run, const struct spawn_init *init)
{
	begin(run, STEP_MOUNT);
	for (int i = 0; i < init->mount_count; i++) {
		const struct spawn_mount *m = &init->mounts[i];

		run->result->path = i;
		check(run, syscall(SYS_mount, m->source, m->target, m->type, m->flags, m->data));
	}
}

// await reports a step and waits for an order of up to size - 1 bytes; a NUL is put
// behind it. Without its agent the process ends.
static void await(struct run *run, enum spawn_step step, char *order, size_t size, int files[FILES])
{
	char rights[CMSG_SPACE(FILES * sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = {order, size - 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights};

	begin(run, step);
	report(run);
	long length = syscall(SYS_recvmsg, run->control, &message, MSG_CMSG_CLOEXEC);
	if (length <= 0)
		finish(EXIT_FAILED);
	if (message.msg_flags & MSG_CTRUNC) { // its limit of open files (net/core/scm.c, scm_detach_fds)
		begin(run, STEP_RECEIVE);
		errno = EMFILE;
		fail(run);
	}
	order[length] = 0;
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_len == CMSG_LEN(FILES * sizeof(int)))
		memcpy(files, CMSG_DATA(header), FILES * sizeof(int));
}

// None of the agent's files may be reachable through /proc/self/fd, for instance
// as a working directory (CVE-2024-21626).
static void enter(struct run *run, const struct spawn_init *init, const int files[FILES])
{
	begin(run, STEP_ENTER);
	check(run, syscall(SYS_fchdir, files[ROOT]));
	check(run, syscall(SYS_chroot, "."));
	begin(run, STEP_STDIO);
	for (int i = 0; i < 3; i++)
		check(run, syscall(SYS_dup3, files[i], i, 0));
	begin(run, STEP_CLOSE);
	close_files(init);
}

static void terminate(int signal)
{
	(void)signal;
	finish(EXIT_TERMINATED);
}

static void ignore(int signal) { (void)signal; }

// Where a handler returns to (sigreturn(2)).
void return_from_signal(void);
__asm__(".text\n"
	"return_from_signal:\n\t"
	"mov $15, %rax\n\t" // SYS_rt_sigreturn
	"syscall\n");

static void handle(int signal, void (*handler)(int))
{
	enum { RESTORER = 0x04000000 }; // asm/signal.h, SA_RESTORER
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} action = {handler, SA_RESTART | RESTORER, return_from_signal, 0};

	syscall(SYS_rt_sigaction, signal, &action, NULL, SIGNAL_MASK_SIZE);
}

// A container that is not started yet does with signals what runc's does: its
// process is a Go program there, which some signals end with status 2 and most
// others do not end. Without a handler the kernel would ignore all of them for
// the first process of a PID namespace, and others would end by them.
static void handle_signals(void)
{
	static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
	static const int ignored[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGIO, SIGPWR};
	enum { FIRST_REALTIME = 34, LAST_REALTIME = 64 };
	uint64_t none = 0;

	int is_first = syscall(SYS_getpid) == 1; // the others end by these without a handler

	for (unsigned i = 0; is_first && i < sizeof ending / sizeof ending[0]; i++)
		handle(ending[i], terminate);
	for (unsigned i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
		handle(ignored[i], ignore);
	for (int signal = FIRST_REALTIME; signal <= LAST_REALTIME; signal++)
		handle(signal, ignore);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, SIGNAL_MASK_SIZE);
}

// say tells the process's stderr why execve(2) failed.
static void say(const struct spawn_init *init, char *path, int error)
{
	char *text = error < init->error_count ? init->errors[error] : "unknown error";
	struct iovec parts[] = {{"exec ", 5}, {path, strlen(path)}, {": ", 2}, {text, strlen(text)}, {"\n", 1}};

	syscall(SYS_writev, 2, parts, sizeof parts / sizeof parts[0]);
}

static void be_init(const struct spawn_init *init)
{
	static char home[1 + SPAWN_HOME_SIZE], start[2];
	struct spawn_result result = {0};
	struct run run = {&init->plan, &result, init->control};
	int files[FILES] = {-1, -1, -1, -1};

	close_files(init);
	begin(&run, STEP_CGROUP_NAMESPACE);
	check(&run, syscall(SYS_unshare, CLONE_NEWCGROUP));
	write_oom_score(&run);
	set_rlimits(&run);
	make_mounts(&run, init);
	await(&run, STEP_MOUNTED, home, sizeof home, files);
	if (init->home)
		*init->home = home + 1;
	enter(&run, init, files);
	become(&run);
	char *path = find_program(&run);
	handle_signals();
	await(&run, STEP_FOUND, start, sizeof start, files);
	begin(&run, STEP_EXECUTE);
	report(&run);
	execute(&run, path);
	say(init, path, errno);
	finish(EXIT_FAILED);
}

pid_t spawn_init(const struct spawn_init *init)
{
	struct clone_arguments arguments = {.flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
	struct inherited before;

	if (init->new_pid)
		arguments.flags |= CLONE_NEWPID;
	if (init->plan.cgroup >= 0) {
		arguments.flags |= CLONE_INTO_CGROUP;
		arguments.cgroup = init->plan.cgroup;
	}
	shed(&before);
	pid_t pid = syscall(SYS_clone3, &arguments, sizeof arguments);
	if (pid == 0)
		be_init(init);
	restore(&before);
	return pid;
}
