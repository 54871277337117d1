// Before Go starts: if this is the first program of the machine, copy it to a
// memory file, seal that against any change and execute it. Nothing is mounted
// yet, so /proc is not used. On any failure the program goes on unsealed:
// libcontainer then copies it at each start, which is slow and no less safe.

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020 // Linux 6.3
#endif

#define SELF "/init"
#define SEALED "kata-agent"

extern char **environ;

static int copy_to(int to, int from)
{
	struct stat st;

	if (fstat(from, &st) < 0)
		return -1;
	for (off_t left = st.st_size; left > 0;) {
		ssize_t n = sendfile(to, from, NULL, left);
		if (n <= 0)
			return -1;
		left -= n;
	}
	return 0;
}

static void execute_sealed(int from, int to, char **argv)
{
	if (copy_to(to, from) < 0)
		return;
	fchmod(to, 0511);
	fcntl(to, F_ADD_SEALS, F_SEAL_EXEC);
	if (fcntl(to, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return;
	unlink(SELF); // The copy in the initramfs is not needed any more.
	syscall(SYS_execveat, to, "", argv, environ, AT_EMPTY_PATH);
}

// The C library hands main's arguments to constructors, too.
__attribute__((constructor)) static void seal(int argc, char **argv)
{
	if (getpid() != 1 || argc < 1 || strcmp(argv[0], SELF) != 0)
		return;

	int from = open(SELF, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return;
	int to = memfd_create(SEALED, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (to >= 0) {
		char *name = argv[0];
		argv[0] = SEALED; // Tells the second start from the first.
		execute_sealed(from, to, argv);
		argv[0] = name;
		close(to);
	}
	close(from);
}
