// files DIR [FRESH1 FRESH2] does in DIR what programs do with files. It prints one
// line for each kind of work: its name and how many milliseconds it took. FRESH1
// and FRESH2 are files of the same size that were never read before; the first is
// read in order, the second at random.
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	block = 1 << 20,  // a large block
	page = 4096,      // a small one
	blocks = 64,      // large blocks in a file
	pages = 2000,     // small blocks at random
	writes = 5,       // of the whole file, one after the other
	dirs = 100,       // directories
	each = 100,       // files in each of them
};

static char buf[block];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static int must(int result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

static void whole(ssize_t n, size_t want, const char *what)
{
	must(n, what);
	if ((size_t)n != want)
		errx(1, "%s: %zd bytes, want %zu", what, n, want);
}

static off_t somewhere(void)
{
	return (off_t)(random() % ((long)blocks * block / page)) * page;
}

static void write_in_order(const char *path)
{
	int fd = must(open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644), path);
	for (int i = 0; i < blocks; i++)
		whole(write(fd, buf, block), block, path);
	must(fsync(fd), path);
	close(fd);
}

static void write_at_random(const char *path)
{
	int fd = must(open(path, O_WRONLY), path);
	for (int i = 0; i < pages; i++)
		whole(pwrite(fd, buf, page, somewhere()), page, path);
	must(fsync(fd), path);
	close(fd);
}

static void read_in_order(const char *path)
{
	int fd = must(open(path, O_RDONLY), path);
	for (int i = 0; i < blocks; i++)
		for (ssize_t got = 0, n; got < block; got += n)
			if ((n = must(read(fd, buf, block - got), path)) == 0)
				errx(1, "%s: too short", path);
	close(fd);
}

static void read_at_random(const char *path)
{
	int fd = must(open(path, O_RDONLY), path);
	must(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), path);
	for (int i = 0; i < pages; i++)
		whole(pread(fd, buf, page, somewhere()), page, path);
	close(fd);
}

// each_file calls what for every file of the tree. Unless they are NULL, it calls
// before and after for every directory, before and after the directory's files.
static void each_file(void (*before)(const char *), void (*what)(const char *), void (*after)(const char *))
{
	char path[64];
	for (int d = 0; d < dirs; d++) {
		snprintf(path, sizeof path, "tree/%d", d);
		if (before)
			before(path);
		for (int i = 0; i < each; i++) {
			snprintf(path, sizeof path, "tree/%d/%d", d, i);
			what(path);
		}
		snprintf(path, sizeof path, "tree/%d", d);
		if (after)
			after(path);
	}
}

static void make_dir(const char *path) { must(mkdir(path, 0755), path); }
static void remove_dir(const char *path) { must(rmdir(path), path); }
static void remove_file(const char *path) { must(unlink(path), path); }

static void make_file(const char *path)
{
	int fd = must(open(path, O_CREAT | O_EXCL | O_WRONLY, 0644), path);
	whole(write(fd, buf, 100), 100, path);
	close(fd);
}

static void stat_file(const char *path)
{
	struct stat st;
	must(lstat(path, &st), path);
	if (st.st_size != 100)
		errx(1, "%s: size %ld", path, (long)st.st_size);
}

static void list_dir(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;
	if (!d)
		err(1, "%s", path);
	while (readdir(d))
		n++;
	closedir(d);
	if (n != each + 2)
		errx(1, "%s: %d names, want %d", path, n, each + 2);
}

#define TAKE(name, work) do { double t = now(); work; printf(name " %.3f\n", now() - t); fflush(stdout); } while (0)

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 4)
		errx(2, "usage: files DIR [FRESH1 FRESH2]");
	must(chdir(argv[1]), argv[1]);
	memset(buf, 'k', sizeof buf);
	for (int i = 0; i < writes; i++)
		TAKE("write", write_in_order("file"));
	TAKE("write4k", write_at_random("file"));
	if (argc == 4) {
		TAKE("read", read_in_order(argv[2]));
		TAKE("read4k", read_at_random(argv[3]));
	}
	make_dir("tree");
	TAKE("create", each_file(make_dir, make_file, NULL));
	TAKE("stat", each_file(list_dir, stat_file, NULL));
	TAKE("remove", each_file(NULL, remove_file, remove_dir));
	remove_dir("tree");
	remove_file("file");
	return 0;
}
