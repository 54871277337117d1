/* The shell of a busybox that passes on variables whose names are not names of
 * the shell, such as "data-1". Debian's drops them, and cases of Kubernetes' own
 * suite print their environment by "sh -c env". */
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "-c") == 0 && strcmp(argv[2], "env") == 0)
		execl("/bin/busybox", "env", (char *)0);
	else
		execv("/bin/busybox", argv);
	return 127;
}
