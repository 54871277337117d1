// awaitfile DIR NAME waits until inotify(7) reports that NAME was created in or
// moved into DIR, like programs that watch their ConfigMap.
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	_Alignas(struct inotify_event) char buf[4096];
	int fd = inotify_init1(IN_CLOEXEC);

	if (argc != 3 || fd < 0 || inotify_add_watch(fd, argv[1], IN_CREATE | IN_MOVED_TO) < 0) {
		perror("awaitfile");
		return 1;
	}
	puts("watching");
	fflush(stdout);
	for (;;) {
		ssize_t n = read(fd, buf, sizeof buf);
		if (n <= 0)
			return 1;
		for (char *p = buf; p < buf + n;) {
			struct inotify_event *e = (struct inotify_event *)p;
			if (e->len && strcmp(e->name, argv[2]) == 0)
				return 0;
			p += sizeof *e + e->len;
		}
	}
}
