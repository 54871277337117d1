package guest

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
)

// sharedLimits are the limits on what the kernel gives to a user that the agent needs too:
// it and the containers' root are one user, and a container needs no privilege to use
// them up. By themselves they follow the memory, of which the guest has little. The kernel
// counts what a container has as its memory.
var sharedLimits = []struct {
	file  string // below /proc/sys
	limit uint64
	// lost is what the agent can no longer do.
	lost string
}{
	// fs/eventpoll.c: what fits into a 25th of the memory.
	{"fs/epoll/max_user_watches", 1 << 31, "serve a connection"},
	// kernel/ucount.c: one for every second thread. Each takes up to INT_MAX.
	{"user/max_cgroup_namespaces", math.MaxInt32, makeContainer},
	{"user/max_ipc_namespaces", math.MaxInt32, makeContainer},
	{"user/max_mnt_namespaces", math.MaxInt32, makeContainer},
	{"user/max_net_namespaces", math.MaxInt32, makeContainer},
	{"user/max_pid_namespaces", math.MaxInt32, makeContainer},
	{"user/max_time_namespaces", math.MaxInt32, makeContainer},
	{"user/max_user_namespaces", math.MaxInt32, makeContainer},
	{"user/max_uts_namespaces", math.MaxInt32, makeContainer},
}

const makeContainer = "make a container"

// removeSharedLimits removes them, and goes on after an error. proc is where procfs is
// mounted.
func removeSharedLimits(proc string) error {
	var errs []error
	for _, l := range sharedLimits {
		if err := writeFile(filepath.Join(proc, "sys", l.file), strconv.FormatUint(l.limit, 10)); err != nil {
			errs = append(errs, fmt.Errorf("a container can keep the agent from being able to %s: %w", l.lost, err))
		}
	}
	return errors.Join(errs...)
}
