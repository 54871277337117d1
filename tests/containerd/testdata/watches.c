// watches has epoll watch files 100,000 times, or until the kernel refuses it: more
// than Linux allows a user with less than 512 MiB of memory (fs/eventpoll.c,
// eventpoll_init). Then it says so and waits.

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { files = 500, polls = 200 };

static int watch(void)
{
	int fds[files];

	for (int i = 0; i < files; i++)
		if ((fds[i] = eventfd(0, 0)) < 0)
			return errno;
	for (int p = 0; p < polls; p++) {
		int poll = epoll_create1(0);

		if (poll < 0)
			return errno;
		for (int i = 0; i < files; i++) {
			struct epoll_event event = { .events = EPOLLIN };

			if (epoll_ctl(poll, EPOLL_CTL_ADD, fds[i], &event) < 0)
				return errno;
		}
	}
	return 0;
}

int main(void)
{
	printf("watching: %s\n", strerror(watch()));
	fflush(stdout);
	pause();
}
