#define _GNU_SOURCE
#include "process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/prctl.h>
#include <signal.h>
#include <stddef.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void shed(struct inherited *before)
{
	enum { USUAL_TIMER_SLACK = 50000 }; // prctl(2), PR_SET_TIMERSLACK
	sigset_t all;

	sigfillset(&all);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before->signals, SIGNAL_MASK_SIZE);
	before->timer_slack = syscall(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0);
	syscall(SYS_prctl, PR_SET_TIMERSLACK, USUAL_TIMER_SLACK, 0, 0, 0);
}

void restore(const struct inherited *before)
{
	int error = errno;

	syscall(SYS_prctl, PR_SET_TIMERSLACK, before->timer_slack, 0, 0, 0);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before->signals, NULL, SIGNAL_MASK_SIZE);
	errno = error;
}

void report(struct run *run)
{
	if (run->control >= 0)
		syscall(SYS_sendto, run->control, run->result, sizeof *run->result, MSG_NOSIGNAL, NULL, 0);
}

// The exit status is seen only when execve(2) itself has failed.
void fail(struct run *run)
{
	run->result->error = errno;
	report(run);
	for (;;)
		syscall(SYS_exit_group, EXIT_FAILED);
}

void begin(struct run *run, enum spawn_step step) { run->result->step = step; }

void check(struct run *run, long result)
{
	if (result < 0)
		fail(run);
}

void write_oom_score(struct run *run)
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

static long set_rlimit(int resource, uint64_t soft, uint64_t hard)
{
	struct {
		uint64_t soft, hard;
	} value = {soft, hard};

	return syscall(SYS_prlimit64, 0, resource, &value, NULL);
}

void set_rlimits(struct run *run)
{
	begin(run, STEP_RLIMITS);
	for (int i = 0; i < run->plan->rlimit_count; i++) {
		struct spawn_rlimit *limit = &run->plan->rlimits[i];

		if (limit->resource == RLIMIT_NPROC) // Without the capability the agent's stays.
			set_rlimit(RLIMIT_NPROC, RLIM64_INFINITY, RLIM64_INFINITY);
		else
			check(run, set_rlimit(limit->resource, limit->soft, limit->hard));
	}
}

// limit_processes sets the limit that set_rlimits left infinite. To lower it takes
// no capability. As with the other limits the last one given counts.
static void limit_processes(struct run *run)
{
	struct spawn_rlimit *last = NULL;

	begin(run, STEP_RLIMITS);
	for (int i = 0; i < run->plan->rlimit_count; i++) {
		if (run->plan->rlimits[i].resource == RLIMIT_NPROC)
			last = &run->plan->rlimits[i];
	}
	if (last)
		check(run, set_rlimit(RLIMIT_NPROC, last->soft, last->hard));
}

// open_keyring lets the keyring's user search it. Its permissions are the fourth
// field of what KEYCTL_DESCRIBE gives: "type;uid;gid;permissions;description".
static void open_keyring(struct run *run, int keyring)
{
	enum { USER_SEARCH = 0x80000 };
	char text[256];
	uint32_t permissions = 0;
	int field = 0;

	begin(run, STEP_KEYRING_PERMISSIONS);
	long length = syscall(SYS_keyctl, KEYCTL_DESCRIBE, keyring, text, sizeof text);
	check(run, length);
	for (long i = 0; i < length && i < (long)sizeof text && field < 4; i++) {
		char c = text[i];

		if (c == ';')
			field++;
		else if (field == 3)
			permissions = permissions << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	check(run, syscall(SYS_keyctl, KEYCTL_SETPERM, keyring, permissions | USER_SEARCH));
}

// join_keyring gives the process its container's session keyring. Another container of
// the pod may have used up the keys that their common user may have. A process without a
// session keyring gets a nameless one even then (security/keys/process_keys.c,
// install_session_keyring_to_cred), and without any it runs, too.
static void join_keyring(struct run *run)
{
	begin(run, STEP_KEYRING);
	long keyring = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, run->plan->keyring);
	if (keyring < 0 && errno == EDQUOT)
		keyring = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	if (keyring < 0 && errno != ENOSYS && errno != EDQUOT)
		fail(run);
	if (keyring >= 0 && run->plan->new_keyring)
		open_keyring(run, keyring);
}

static void start_session(struct run *run)
{
	begin(run, STEP_SESSION);
	check(run, syscall(SYS_setsid));
	join_keyring(run);
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

char *find_program(struct run *run)
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
		if (S_ISDIR(info.st_mode)) {
			errno = EISDIR;
			continue;
		}
		if (syscall(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
			continue;
		if (!run->plan->absolute || path[0] == '/')
			return path;
		begin(run, STEP_RELATIVE);
		errno = EINVAL;
		break;
	}
	fail(run);
	return NULL;
}

void execute(struct run *run, char *path)
{
	sigset_t none;

	begin(run, STEP_EXECUTE);
	sigemptyset(&none);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, SIGNAL_MASK_SIZE);
	syscall(SYS_execve, path, run->plan->argv, run->plan->envp);
}

void become(struct run *run)
{
	limit_processes(run);
	start_session(run);
	own_stdio(run);
	if (run->plan->umask >= 0)
		syscall(SYS_umask, run->plan->umask);
	enter_directory_and_set_user(run);
	set_capabilities(run);
	begin(run, STEP_NO_NEW_PRIVS);
	if (run->plan->no_new_privs)
		check(run, syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

