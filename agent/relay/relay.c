#define _GNU_SOURCE
#include "relay.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
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

// Reads what the reader has freed, without waiting. It reports whether the reader is
// still there.
static bool take_freed(const struct relay_plan *plan, struct relay_slots *slots)
{
	char freed[16];
	ssize_t n;

	do
		n = recv(plan->out, freed, sizeof freed, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN;
	if (n == 0 || n > slots->used)
		return false;
	slots->used -= n;
	return true;
}

// Waits for input. It returns false when the copying is to stop, or when there was no
// input for the idle time. While slots are in use it waits without that limit, and counts
// those that the reader frees.
static bool await_input(const struct relay_plan *plan, struct relay_slots *slots)
{
	for (;;) {
		bool used = slots && slots->used > 0;
		struct pollfd fds[] = {
			{.fd = plan->stop, .events = POLLIN},
			{.fd = plan->in, .events = POLLIN},
			{.fd = used ? plan->out : -1, .events = POLLIN},
		};
		int n = ppoll(fds, 3, used ? NULL : &plan->idle, NULL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || fds[0].revents)
			return false;
		if (fds[1].revents)
			return true;
		if (!take_freed(plan, slots))
			return false;
	}
}

// Reads the next bytes. It returns 0 when the copying is to stop.
static size_t next(const struct relay_plan *plan, struct relay_slots *slots, char *block)
{
	for (;;) {
		ssize_t n = read(plan->in, block, plan->size);

		if (n >= 0)
			return n;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN || !await_input(plan, slots))
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
		size_t n = next(plan, NULL, block);

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

// Waits for a free slot. It returns false when the copying is to stop.
static bool await_slot(const struct relay_plan *plan, struct relay_slots *slots)
{
	bool ready;

	for (;;) {
		if (!take_freed(plan, slots))
			return false;
		if (slots->used < slots->count)
			return true;
		if (!await(plan, plan->out, POLLIN, NULL, &ready))
			return false;
	}
}

// Writes the block, the length of its data before the data, to the next slot.
static bool fill(struct relay_slots *slots, char *block, size_t length)
{
	size_t end = slots->header + length, at = 0;

	for (size_t i = 0; i < slots->header; i++)
		block[i] = length >> 8 * (slots->header - 1 - i);
	while (at < end) {
		ssize_t n = pwrite(slots->file, block + at, end - at, slots->next * slots->size + at);

		if (n > 0)
			at += n;
		else if (n == 0 || errno != EINTR)
			return false;
	}
	return true;
}

// Tells the reader of the next slot. It returns false when the copying is to stop.
static bool tell(const struct relay_plan *plan, struct relay_slots *slots)
{
	bool ready;

	while (send(plan->out, &slots->kind, 1, MSG_NOSIGNAL) != 1) {
		if (errno != EINTR && (errno != EAGAIN || !await(plan, plan->out, POLLOUT, NULL, &ready)))
			return false;
	}
	slots->used++;
	slots->next = (slots->next + 1) % slots->count;
	return true;
}

static void run_slots(const struct relay_plan *plan, struct relay_slots *slots, char *block, struct relay_result *result)
{
	bool ready;

	while (await_slot(plan, slots)) {
		size_t n = next(plan, slots, block + slots->header);

		if (n == 0)
			return;
		result->read += n;
		result->from = 0;
		result->to = n;
		if (!fill(slots, block, n)) {
			slots->failed = 1;
			return;
		}
		if (!tell(plan, slots))
			return;
		result->from = n;
		if (!await(plan, -1, 0, n < plan->small ? &plan->pause : &(struct timespec){0}, &ready))
			return;
	}
}

// On one CPU a thread of the usual policy interrupts the process for each of its writes, and
// a slot then gets little, for the same request and messages. One of SCHED_BATCH waits until
// the process waits, or its time is over (sched(7)), and then finds a full pipe.
void relay_slots_run(const struct relay_plan *plan, struct relay_slots *slots, char *block, struct relay_result *result)
{
	const struct sched_param none = {0};
	int policy = sched_getscheduler(0);

	sched_setscheduler(0, SCHED_BATCH, &none);
	run_slots(plan, slots, block, result);
	sched_setscheduler(0, policy, &none); // The thread is Go's.
}
