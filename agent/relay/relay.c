#define _GNU_SOURCE
#include "relay.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

// Waits for events on fd, or for the end of a time that is not NULL. It reports
// whether the copying may go on, and in *ready whether fd has an event.
static bool await(const struct relay_plan *plan, int fd, short events, const struct timespec *time, bool *ready)
{
	struct pollfd fds[] = {{.fd = plan->stop, .events = POLLIN}, {.fd = fd, .events = events}};
	int n;

	do
		n = ppoll(fds, 2, time, NULL);
	while (n < 0 && errno == EINTR);
	*ready = n > 0 && fds[1].revents;
	return n >= 0 && !fds[0].revents;
}

// Reads the next bytes. It returns 0 when the copying is to stop.
static size_t next(const struct relay_plan *plan, char *block)
{
	bool ready;

	for (;;) {
		ssize_t n = read(plan->in, block, plan->size);

		if (n >= 0)
			return n;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN || !await(plan, plan->in, POLLIN, &plan->idle, &ready) || !ready)
			return 0;
	}
}

// Sends what was read. It reports whether all of it was.
static bool pass(const struct relay_plan *plan, const char *block, struct relay_result *result)
{
	bool ready;

	while (result->from < result->to) {
		ssize_t n = send(plan->out, block + result->from, result->to - result->from, MSG_NOSIGNAL);

		if (n >= 0)
			result->from += n;
		else if (errno != EINTR && (errno != EAGAIN || !await(plan, plan->out, POLLOUT, NULL, &ready)))
			return false;
	}
	return true;
}

void relay_run(const struct relay_plan *plan, char *block, struct relay_result *result)
{
	bool ready;

	for (;;) {
		size_t n = next(plan, block);

		if (n == 0)
			return;
		result->read += n;
		result->from = 0;
		result->to = n;
		if (!pass(plan, block, result))
			return;
		if (!await(plan, -1, 0, n < plan->small ? &plan->pause : &(struct timespec){0}, &ready))
			return;
	}
}
