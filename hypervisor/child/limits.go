package child

import "golang.org/x/sys/unix"

// mostOpen is the largest soft limit of open files that a child gets: the kernel's
// default for what a hard limit can be (fs.nr_open). Libraries have loops over all
// numbers up to the limit, and some hosts set it to 2^30.
const mostOpen = 1 << 20

// raiseOpenFiles lets this process have as many open files as its hard limit allows, and
// the program that it executes: for that Go would restore the soft limit that it found
// (syscall/exec_unix.go), 1024 under systemd. QEMU needs about 10 for each queue of a
// NIC, and raises the limit itself only since 9.0. If that fails, it may still be enough.
func raiseOpenFiles() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	limit.Cur = min(limit.Max, mostOpen)
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}
