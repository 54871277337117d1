/* "ipcs -m" for the suite's images: Debian's busybox has none. The suite looks
 * for the id of a segment in what is printed. /proc/sysvipc/shm lists the
 * segments of the reader's own IPC namespace (sysvipc(7)). */
#include <stdio.h>

int main(void)
{
	char line[512];
	FILE *f = fopen("/proc/sysvipc/shm", "r");

	if (!f) {
		perror("ipcs: /proc/sysvipc/shm");
		return 1;
	}
	puts("------ Shared Memory Segments --------");
	while (fgets(line, sizeof(line), f))
		fputs(line, stdout);
	return ferror(f) ? 1 : 0;
}
