/*
 * The pod's first process: it holds the pod's namespaces, reaps orphaned
 * processes, and exits on SIGINT or SIGTERM. The signal handlers do all the work,
 * so it can sleep without a timer.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int sig)
{
	(void)sig;
	_exit(0);
}

static void reap(int sig)
{
	(void)sig;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(void)
{
	struct sigaction ending = { .sa_handler = end };
	struct sigaction reaping = { .sa_handler = reap, .sa_flags = SA_NOCLDSTOP };

	if (sigaction(SIGINT, &ending, NULL) || sigaction(SIGTERM, &ending, NULL) ||
	    sigaction(SIGCHLD, &reaping, NULL))
		return 1;
	for (;;)
		pause();
}
