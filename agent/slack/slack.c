#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
	// A tick of a kernel with 250 Hz. The monitor runs no later than that when a
	// goroutine is to be preempted, which it is after 10 ms.
	AGENT_SLACK_NS = 4000000,
	// What the kernel gives its first process (prctl(2)).
	USUAL_SLACK_NS = 50000,
};

// It runs before libcontainer's constructor, which has no priority and clones the
// container's process (nsexec.c).
__attribute__((constructor(101))) static void set_slack(void)
{
	if (getenv("_LIBCONTAINER_INITPIPE")) // nsexec.c: this is libcontainer's stage
		prctl(PR_SET_TIMERSLACK, USUAL_SLACK_NS, 0, 0, 0);
	else if (getpid() == 1)
		prctl(PR_SET_TIMERSLACK, AGENT_SLACK_NS, 0, 0, 0);
}
