/*
 * An init that runs iperf3 in a machine with one network card: for each line on
 * the console, its words are the arguments of one run, whose output goes to the
 * console, followed by a line with END and the exit status.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* Each after those that it needs. A kernel has some of them built in; these have no file. */
static const char *const modules[] = {
	"drivers/virtio/virtio_ring",
	"drivers/virtio/virtio",
	"drivers/virtio/virtio_pci_legacy_dev",
	"drivers/virtio/virtio_pci_modern_dev",
	"drivers/virtio/virtio_pci",
	"net/core/failover",
	"drivers/net/net_failover",
	"drivers/net/virtio_net",
};

static void load_modules(void)
{
	struct utsname name;

	uname(&name);
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		char path[512];
		int fd;

		snprintf(path, sizeof(path), "/lib/modules/%s/kernel/%s.ko", name.release, modules[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (syscall(SYS_finit_module, fd, "", 0) < 0)
			perror(path);
		close(fd);
	}
}

static int set_address(struct ifreq *ifr, int fd, unsigned long request, const char *address)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&ifr->ifr_addr;

	memset(in, 0, sizeof(*in));
	in->sin_family = AF_INET;
	inet_pton(AF_INET, address, &in->sin_addr);
	return ioctl(fd, request, ifr);
}

/* ADDRESS is the card's, in a network of 24 bits. */
static int raise_card(void)
{
	struct ifreq ifr = {.ifr_name = "eth0"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || set_address(&ifr, fd, SIOCSIFADDR, ADDRESS) < 0 ||
	    set_address(&ifr, fd, SIOCSIFNETMASK, "255.255.255.0") < 0)
		return -1;
	ifr.ifr_flags = IFF_UP | IFF_RUNNING;
	return ioctl(fd, SIOCSIFFLAGS, &ifr);
}

static void run(char *line)
{
	char *argv[32] = {LOADER, "--library-path", "/tools", "/tools/iperf3"};
	int status = 0, argc = 4;
	pid_t pid;

	for (char *word = strtok(line, " \r\n"); word && argc < 31; word = strtok(NULL, " \r\n"))
		argv[argc++] = word;
	pid = fork();
	if (pid == 0) {
		execv(argv[0], argv);
		perror(argv[0]);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	printf("\nEND %d\n", status);
	fflush(stdout);
}

int main(void)
{
	struct termios tty;
	char line[512];

	mkdir("/proc", 0755);
	mkdir("/tmp", 01777);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	if (tcgetattr(STDIN_FILENO, &tty) == 0) {
		tty.c_lflag &= ~ECHO;
		tcsetattr(STDIN_FILENO, TCSANOW, &tty);
	}
	load_modules();
	/* The kernel may find the card a little after its driver was loaded. */
	for (int tries = 0; raise_card() < 0; tries++) {
		if (tries == 100) {
			perror("eth0");
			reboot(RB_POWER_OFF);
		}
		usleep(100000);
	}
	puts("INIT");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		run(line);
	reboot(RB_POWER_OFF);
	return 0;
}
