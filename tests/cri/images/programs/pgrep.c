/* "pgrep NAME" for the suite's images: Debian's busybox has none. Prints the
 * pids whose name in /proc/PID/comm contains NAME, and fails when there is none
 * (pgrep(1), without patterns). It does not find itself. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int has_name(const char *pid, const char *name)
{
	char path[64], comm[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
	f = fopen(path, "r");
	if (!f)
		return 0; /* the process has ended */
	if (!fgets(comm, sizeof(comm), f))
		comm[0] = 0;
	fclose(f);
	return strstr(comm, name) != NULL;
}

int main(int argc, char **argv)
{
	struct dirent *entry;
	int found = 0;
	DIR *proc;

	if (argc != 2) {
		fputs("usage: pgrep NAME\n", stderr);
		return 2;
	}
	proc = opendir("/proc");
	if (!proc) {
		perror("pgrep: /proc");
		return 3;
	}
	while ((entry = readdir(proc))) {
		if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == getpid())
			continue;
		if (has_name(entry->d_name, argv[1])) {
			puts(entry->d_name);
			found = 1;
		}
	}
	return found ? 0 : 1;
}
