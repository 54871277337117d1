package config

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// onlineFile lists the host's CPUs that can run something, as "0-3,7" (the kernel's
// Documentation/admin-guide/cputopology.rst).
const onlineFile = "/sys/devices/system/cpu/online"

// HostCPUs returns how many CPUs of the host are online. runtime.NumCPU counts only those
// that this process may use: a process that a pod's shim has started is bound to the pod's
// cpuset, but what it makes is for other pods too.
func HostCPUs() int {
	online, err := os.ReadFile(onlineFile)
	if err == nil {
		var n int
		if n, err = countCPUs(string(online)); err == nil {
			return n
		}
	}
	return runtime.NumCPU() // without /sys
}

// countCPUs counts the CPUs in the kernel's list format.
func countCPUs(list string) (n int, err error) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, _ := strings.Cut(part, "-")
		from, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return 0, err
		}
		to, err := strconv.ParseUint(cmp.Or(last, first), 10, 16)
		if err != nil {
			return 0, err
		}
		if to < from {
			return 0, fmt.Errorf("%q is no list of CPUs", list)
		}
		n += int(to-from) + 1
	}
	return n, nil
}
