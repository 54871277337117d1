// fileops DIR SEED COUNT does COUNT random operations on files below DIR and
// prints each with its result, then everything that is left below DIR. Two file
// systems that behave alike give the same text for the same seed. What may
// legitimately differ between two runs is not printed: inode numbers, blocks, the
// time of day.
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { handles = 8, most = 200000, longest = 160 };

static uint64_t state;
static int held[handles];
static unsigned char data[1 << 16];

// pick returns a number below n (xorshift64*).
static unsigned pick(unsigned n)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (unsigned)((state * 2685821657736338717ull) >> 33) % n;
}

// pick_mode returns permissions without the sticky bit: what that forbids
// depends on sysctls (fs.protected_symlinks and similar ones).
static unsigned pick_mode(void) { return pick(010000) & ~(unsigned)S_ISVTX; }

static const char *pick_path(char *path)
{
	static const char *dirs[] = {"", "", "d/", "e/", "d/f/"};
	static const char *files[] = {"a", "b", "c", "g"}, *nodes[] = {"d", "e", "f"};
	snprintf(path, longest, "%s%s", dirs[pick(5)], pick(8) ? files[pick(4)] : nodes[pick(3)]);
	return path;
}

static unsigned pick_size(void)
{
	static const unsigned sizes[] = {0, 1, 100, 4095, 4096, 4097, 20000, 65536};
	return sizes[pick(8)];
}

static void said(long result)
{
	if (result < 0)
		printf(": %s\n", strerrorname_np(errno));
	else
		printf(": %ld\n", result);
}

static uint32_t sum(const unsigned char *p, size_t n)
{
	uint32_t h = 2166136261u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 16777619u;
	return h;
}

static void fill(unsigned n)
{
	unsigned char first = (unsigned char)pick(256);
	for (unsigned i = 0; i < n; i++)
		data[i] = (unsigned char)(first + i * 7);
}

static void show(const struct stat *st)
{
	printf(" mode=%o owner=%d:%d", st->st_mode, st->st_uid, st->st_gid);
	if (!S_ISDIR(st->st_mode))
		printf(" links=%lu size=%ld", (unsigned long)st->st_nlink, (long)st->st_size);
	if (S_ISCHR(st->st_mode))
		printf(" device=%u:%u", major(st->st_rdev), minor(st->st_rdev));
}

static void do_open(const char *p)
{
	static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREAT, O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_EXCL,
		O_WRONLY | O_CREAT | O_TRUNC, O_RDWR | O_APPEND | O_CREAT, O_RDONLY | O_DIRECTORY, O_RDONLY | O_NOFOLLOW, O_RDWR | O_SYNC | O_CREAT};
	int i = (int)pick(handles), f = flags[pick(11)] | O_NONBLOCK | O_CLOEXEC, mode = (int)pick_mode();
	if (held[i] >= 0)
		close(held[i]);
	held[i] = open(p, f, mode);
	printf("open %s %o %o", p, f, mode);
	said(held[i] < 0 ? -1 : 0);
}

static void do_write(int fd)
{
	unsigned n = pick_size(), at = pick(most);
	fill(n);
	if (pick(3)) {
		printf("pwrite %u at %u", n, at);
		said(pwrite(fd, data, n, at));
	} else {
		printf("write %u", n);
		said(write(fd, data, n));
		printf("at");
		said(lseek(fd, 0, SEEK_CUR));
	}
}

static void do_read(int fd)
{
	unsigned n = pick_size(), at = pick(most);
	printf("pread %u at %u", n, at);
	ssize_t got = pread(fd, data, n, at);
	if (got > 0)
		printf(" sum=%08x", sum(data, (size_t)got));
	said(got);
}

static void do_map(int fd)
{
	struct stat st;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 4096)
		return;
	unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	printf("mmap");
	said(p == MAP_FAILED ? -1 : 0);
	if (p == MAP_FAILED)
		return;
	fill(64);
	memcpy(p + pick(4000), data, 64);
	printf("sum=%08x msync", sum(p, 4096));
	said(msync(p, 4096, MS_SYNC));
	munmap(p, 4096);
}

static void do_space(int fd)
{
	struct stat st;
	static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE};
	int mode = modes[pick(4)];
	unsigned at = pick(most), n = pick_size();
	switch (pick(4)) {
	case 0:
		printf("fallocate %x %u at %u", (unsigned)mode, n, at);
		said(fallocate(fd, mode, at, n));
		return;
	case 1:
		printf("ftruncate %u", at);
		said(ftruncate(fd, at));
		return;
	case 2:
		printf("fsync");
		said(pick(2) ? fsync(fd) : fdatasync(fd));
		return;
	default:
		if (fstat(fd, &st) || !S_ISREG(st.st_mode))
			return;
		// The file system may choose where the holes are, but not where the data ends.
		printf("seek behind the end");
		said(lseek(fd, 1 << 30, SEEK_DATA));
	}
}

static void do_copy(int fd)
{
	int from = held[pick(handles)];
	loff_t in = pick(most), out = pick(most);
	if (from < 0)
		return;
	printf("copy_file_range from %ld to %ld", (long)in, (long)out);
	said(copy_file_range(from, &in, fd, &out, pick_size(), 0));
}

static void do_lock(int fd)
{
	struct flock lock = {.l_type = (short)(pick(3) == 0 ? F_UNLCK : pick(2) ? F_RDLCK : F_WRLCK), .l_whence = SEEK_SET,
		.l_start = pick(100), .l_len = 1 + pick(100)};
	printf("lock %d %ld+%ld", lock.l_type, (long)lock.l_start, (long)lock.l_len);
	said(fcntl(fd, F_OFD_SETLK, &lock));
}

static void do_handle(int fd)
{
	struct stat st;
	switch (pick(10)) {
	case 0: case 1: case 2: do_write(fd); return;
	case 3: case 4: do_read(fd); return;
	case 5: do_map(fd); return;
	case 6: do_space(fd); return;
	case 7: do_copy(fd); return;
	case 8: do_lock(fd); return;
	default:
		printf("fstat");
		long result = fstat(fd, &st);
		if (!result)
			show(&st);
		said(result);
	}
}

static void do_names(const char *p, const char *q)
{
	static const unsigned flags[] = {0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, 0};
	unsigned flag = flags[pick(5)];
	switch (pick(8)) {
	case 0:
		if (pick(2)) // most paths are below these
			p = (const char *[]){"d", "e", "d/f"}[pick(3)];
		printf("mkdir %s", p); said(mkdir(p, (mode_t)pick_mode() | 0700));
		return;
	case 1: printf("rmdir %s", p); said(rmdir(p)); return;
	case 2: case 3: printf("unlink %s", p); said(unlink(p)); return;
	case 4: printf("link %s %s", p, q); said(link(p, q)); return;
	case 5: printf("symlink %s %s", p, q); said(symlink(p, q)); return;
	default: printf("rename %s %s %x", p, q, flag); said(renameat2(AT_FDCWD, p, AT_FDCWD, q, flag));
	}
}

static void do_node(const char *p)
{
	static const mode_t kinds[] = {S_IFIFO, S_IFCHR, S_IFREG, S_IFSOCK};
	mode_t kind = kinds[pick(4)];
	dev_t device = kind == S_IFCHR && pick(2) ? makedev(1, 3) : 0;
	printf("mknod %s %o %u:%u", p, kind, major(device), minor(device));
	said(mknod(p, kind | 0640, device));
}

static void do_times(const char *p)
{
	struct timespec t[2] = {{1000000000 + pick(1000), pick(1000000000)}, {2000000000 + pick(1000), pick(1000000000)}};
	struct stat st;
	printf("utimensat %s", p);
	long result = utimensat(AT_FDCWD, p, t, AT_SYMLINK_NOFOLLOW);
	if (!result && !lstat(p, &st))
		printf(" mtime=%ld.%09ld", (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	said(result);
}

// capability is a struct vfs_cap_data with CAP_NET_BIND_SERVICE, effective
// (linux/capability.h).
static const uint32_t capability[] = {0x02000001, 1 << 10, 0, 0, 0};

static void do_xattr(const char *p)
{
	static const char *names[] = {"user.a", "user.b", "trusted.a", "security.capability"};
	const char *name = names[pick(4)];
	const void *value = data;
	size_t size = pick(3) ? pick(300) : pick(5000);
	fill((unsigned)size);
	if (!strcmp(name, names[3]))
		value = capability, size = sizeof capability;
	switch (pick(4)) {
	case 0: case 1:
		printf("setxattr %s %s %zu", p, name, size);
		said(lsetxattr(p, name, value, size, pick(3) == 0 ? XATTR_CREATE : 0));
		return;
	case 2:
		// Where the BPF LSM is on, Linux before 6.10 lets a file's owner do this.
		if (value == capability && geteuid() != 0)
			return;
		printf("removexattr %s %s", p, name);
		said(lremovexattr(p, name));
		return;
	default:
		printf("getxattr %s %s", p, name);
		ssize_t n = lgetxattr(p, name, data, sizeof data);
		if (n > 0)
			printf(" sum=%08x", sum(data, (size_t)n));
		said(n);
	}
}

static void do_attributes(const char *p)
{
	struct stat st;
	unsigned mode = pick_mode(), uid = pick(2) * 1000, gid = pick(3) * 500;
	switch (pick(6)) {
	case 0: printf("chmod %s %o", p, mode); said(chmod(p, mode)); return;
	case 1: printf("lchown %s %u:%u", p, uid, gid); said(lchown(p, uid, gid)); return;
	case 2: printf("truncate %s %u", p, mode * 40); said(truncate(p, mode * 40)); return;
	case 3: do_times(p); return;
	case 4:
		printf("access %s %u", p, mode % 8);
		said(faccessat(AT_FDCWD, p, (int)(mode % 8), AT_EACCESS));
		return;
	default:
		printf("stat %s", p);
		long result = pick(2) ? stat(p, &st) : lstat(p, &st);
		if (!result)
			show(&st);
		said(result);
	}
}

static void become(uid_t uid)
{
	printf("become %u", uid);
	if (geteuid() != 0 && seteuid(0))
		err(1, "seteuid");
	said(setegid(uid) || setgroups(0, NULL) || seteuid(uid));
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// names returns the sorted names in a directory, or -1; the caller frees them.
static int names_in(const char *dir, char **names, int max)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;
	if (!d)
		return -1;
	while ((e = readdir(d)) && n < max)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			names[n++] = strdup(e->d_name);
	closedir(d);
	qsort(names, (size_t)n, sizeof *names, by_name);
	return n;
}

static void do_list(const char *p)
{
	char *names[64];
	int n = names_in(p, names, 64);
	printf("list %s", p);
	for (int i = 0; i < n; i++) {
		printf(" %s", names[i]);
		free(names[i]);
	}
	said(n);
}

static void do_readlink(const char *p)
{
	char to[longest];
	ssize_t n = readlink(p, to, sizeof to);
	printf("readlink %s", p);
	if (n > 0)
		printf(" %.*s", (int)n, to);
	said(n);
}

static void dump_xattrs(const char *p)
{
	static char list[4096];
	char *names[64];
	int count = 0;
	ssize_t n = llistxattr(p, list, sizeof list);
	for (char *name = list; n > 0 && name < list + n && count < 64; name += strlen(name) + 1)
		if (!strncmp(name, "user.", 5) || !strncmp(name, "system.", 7) || !strcmp(name, "security.capability"))
			names[count++] = name;
	qsort(names, (size_t)count, sizeof *names, by_name);
	for (int i = 0; i < count; i++) {
		ssize_t size = lgetxattr(p, names[i], data, sizeof data);
		printf(" %s=%zd:%08x", names[i], size, size > 0 ? sum(data, (size_t)size) : 0);
	}
}

static void dump(const char *dir)
{
	char *names[64], path[1024];
	int n = names_in(dir, names, 64);
	if (n < 0) {
		printf("dump %s: %s\n", dir, strerrorname_np(errno));
		return;
	}
	for (int i = 0; i < n; i++) {
		struct stat st;
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		free(names[i]);
		if (lstat(path, &st))
			err(1, "%s", path);
		printf("%s", path);
		show(&st);
		dump_xattrs(path);
		if (S_ISREG(st.st_mode)) {
			uint32_t all = 0;
			ssize_t got;
			int fd = open(path, O_RDONLY);
			while ((got = read(fd, data, sizeof data)) > 0)
				all = all * 31 + sum(data, (size_t)got);
			close(fd);
			printf(" sum=%08x", all);
		}
		printf("\n");
		if (S_ISDIR(st.st_mode))
			dump(path);
	}
}

static void step(void)
{
	char p[longest], q[longest];
	int fd = held[pick(handles)];
	pick_path(p);
	pick_path(q);
	switch (pick(12)) {
	case 0: case 1: do_open(p); return;
	case 2: case 3: case 4: if (fd >= 0) do_handle(fd); return;
	case 5: case 6: do_names(p, q); return;
	case 7: do_attributes(p); return;
	case 8: do_xattr(p); return;
	case 9: if (pick(2)) do_list(pick(2) ? "." : p); else do_readlink(p); return;
	case 10: do_attributes(p); return;
	default:
		if (pick(3) == 0)
			become(pick(2) * 1000);
		else if (pick(3) == 0)
			do_node(p);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		errx(2, "usage: fileops DIR SEED COUNT");
	umask(022);
	signal(SIGPIPE, SIG_IGN);
	if (chdir(argv[1]))
		err(1, "%s", argv[1]);
	state = strtoull(argv[2], NULL, 10) * 2862933555777941757ull + 3037000493ull;
	for (int i = 0; i < handles; i++)
		held[i] = -1;
	for (long i = 0, n = atol(argv[3]); i < n; i++) {
		printf("%ld ", i);
		step();
		printf("\n");
	}
	become(0);
	for (int i = 0; i < handles; i++)
		if (held[i] >= 0)
			close(held[i]);
	dump(".");
	return 0;
}
