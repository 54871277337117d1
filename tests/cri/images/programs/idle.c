/* Waits for SIGTERM or SIGINT and exits. As a container's first process it must
 * wait for them itself: the kernel drops what such a process has no handler for
 * (pid_namespaces(7)). */
#include <signal.h>

int main(void)
{
	sigset_t ends;
	int got;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, 0);
	return sigwait(&ends, &got);
}
