// namespaces makes 900 user namespaces, which needs no privilege, each with a mount
// namespace, or as many as the kernel allows: less than that for a user with 256 MiB of
// memory (kernel/ucount.c, user_namespace_sysctl_init, and kernel/fork.c,
// set_max_threads). It keeps them, says so and waits.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { count = 900 };

// keep returns 0 when a new namespace is open, or else an error.
static int keep(void)
{
	char path[64];
	int answer[2], result = EPIPE, status;
	pid_t child;

	if (pipe2(answer, O_CLOEXEC) < 0 || (child = fork()) < 0)
		return errno;
	if (child == 0) {
		result = unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? errno : 0;
		if (write(answer[1], &result, sizeof(result)) > 0)
			pause();
		_exit(1);
	}
	close(answer[1]);
	if (read(answer[0], &result, sizeof(result)) < 0)
		result = errno;
	close(answer[0]);
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", child);
	if (result == 0 && open(path, O_RDONLY | O_CLOEXEC) < 0)
		result = errno;
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return result;
}

int main(void)
{
	int result = 0;

	for (int i = 0; i < count && result == 0; i++)
		result = keep();
	printf("namespaces: %s\n", strerror(result));
	fflush(stdout);
	pause();
}
