// journal DIR WRITERS starts WRITERS processes. Each appends records without end
// to its own file (DIR/0 and so on), whose first block has the number of the last
// record. "W N" is printed when record N of writer W and the first block have been
// flushed to the disk.
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { record = 4096 };

static uint32_t block[record / sizeof(uint32_t)];

static void put(int fd, uint32_t place, uint32_t number)
{
	for (size_t i = 0; i < record / sizeof *block; i++)
		block[i] = number;
	if (pwrite(fd, block, record, (off_t)place * record) != record)
		err(1, "write record %u", number);
}

static void keep(const char *dir, int writer)
{
	char text[256];
	snprintf(text, sizeof text, "%s/%d", dir, writer);
	int fd = open(text, O_CREAT | O_WRONLY, 0644);
	if (fd < 0)
		err(1, "%s", text);
	for (uint32_t n = 1;; n++) {
		put(fd, n, n);
		put(fd, 0, n);
		if (fdatasync(fd))
			err(1, "fdatasync");
		int length = snprintf(text, sizeof text, "%d %u\n", writer, n);
		if (write(1, text, (size_t)length) != length)
			err(1, "stdout");
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: journal DIR WRITERS");
	for (int i = 0; i < atoi(argv[2]); i++)
		if (fork() == 0)
			keep(argv[1], i);
	while (wait(NULL) > 0)
		;
	return 1; // writers do not exit unless they fail
}
