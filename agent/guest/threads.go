package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// threadsPerMiB is how many threads Linux allows for each MiB of memory: their
// stacks of 16 KiB may be an eighth of it (kernel/fork.c, set_max_threads).
const threadsPerMiB = 8

// ReservedThreads is how many threads the kernel allows in addition, for its own and the
// agent's: those of containers are limited to the others. Without them a container's fork
// bomb would end the machine, because the agent ends if it cannot start a thread. The
// kernel has some hundred with many CPUs, and the agent one for each process it waits for.
const ReservedThreads = 512

// removeLimits removes the limits on a user's processes and on the signals that wait
// for them, of which each POSIX timer has one, on cores and on locked memory. Containers whose specs set
// none inherit them, as they do with runc from an engine. Linux's own for the first two
// are half of the threads that it allows at its start, when the machine may be small;
// what bounds a container is its pids.max, its memory, and the guest's threads-max. For
// cores it has 0, and a program that crashes would leave none. The limit on locked
// memory would be Linux's 8 MiB only until the first container: libcontainer removes
// this process's to load the container's device filter (cgroups, devices/ebpf_linux.go).
func removeLimits() error {
	limits := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	for _, limit := range []int{unix.RLIMIT_NPROC, unix.RLIMIT_SIGPENDING, unix.RLIMIT_CORE, unix.RLIMIT_MEMLOCK} {
		if err := unix.Setrlimit(limit, &limits); err != nil {
			return fmt.Errorf("remove limit %d of processes: %w", limit, err)
		}
	}
	return nil
}

// maxPIDs is the most that the kernel takes (include/linux/threads.h, PID_MAX_LIMIT), and
// what systemd sets on a host (sysctl.d/50-pid-max.conf).
const maxPIDs = 4 << 20

// allowPIDs has process ids go on after 32,768, which Linux begins with: with more memory
// the guest's threads-max and a container's pids.max may be higher. A kernel for small
// machines (CONFIG_BASE_SMALL) refuses it. proc is where procfs is mounted.
func allowPIDs(proc string) error {
	if err := writeFile(filepath.Join(proc, "sys/kernel/pid_max"), strconv.Itoa(maxPIDs)); err != nil {
		return fmt.Errorf("allow %d process ids: %w", maxPIDs, err)
	}
	return nil
}

// reserveThreads allows ReservedThreads in addition to what the kernel allowed at its start.
// It must be called once. proc is where procfs is mounted.
func reserveThreads(proc string) error {
	now, err := threadsMax(proc)
	if err != nil {
		return err
	}
	return allowThreads(proc, now+ReservedThreads)
}

// raiseThreads allows as many threads as the kernel would have at its start with
// mib of memory, and ReservedThreads: by itself it does not follow memory that is added.
// It never lowers the number.
func (r *Resources) raiseThreads(mib uint64) error {
	now, err := threadsMax(r.proc)
	if err != nil {
		return err
	}
	want := mib*threadsPerMiB + ReservedThreads
	if want <= now {
		return nil
	}
	return allowThreads(r.proc, want)
}

// threadsFile has how many threads the kernel allows, below where procfs is mounted.
const threadsFile = "sys/kernel/threads-max"

func threadsMax(proc string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(proc, threadsFile))
	if err != nil {
		return 0, fmt.Errorf("read number of threads: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read number of threads: %w", err)
	}
	return n, nil
}

func allowThreads(proc string, n uint64) error {
	if err := writeFile(filepath.Join(proc, threadsFile), strconv.FormatUint(n, 10)); err != nil {
		return fmt.Errorf("allow %d threads: %w", n, err)
	}
	return nil
}
