package guest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
)

// allowOvercommit lets processes reserve more memory than the machine has. By itself the
// kernel refuses a single mapping that is larger than all memory and swap (mm/util.c,
// __vm_enough_memory), and a guest is small and has no swap: a sparse array would fail that
// succeeds on a host. The kubelet sets the same on its nodes (pkg/kubelet/cm,
// setupKernelTunables). The containers' cgroups bound what is used.
//
// It also reserves memory for processes with CAP_SYS_ADMIN, as the agent is, where
// reservations are limited (vm.overcommit_memory=2, set by kernel_params or by a
// privileged container): the agent would end, and with it the machine, if a container had
// reserved all. What the kernel's command line sets stays. proc is where procfs is mounted.
func allowOvercommit(proc string) error {
	total, err := totalMemory()
	if err != nil {
		return err
	}
	return setOvercommit(proc, total)
}

func setOvercommit(proc string, total uint64) error {
	var errs []error
	operators := commandLineSysctls(proc)
	for file, value := range map[string]uint64{
		"vm/overcommit_memory":    overcommitAlways,
		"vm/admin_reserve_kbytes": adminReserve(total) << 10,
	} {
		if operators[file] {
			continue
		}
		if err := writeFile(filepath.Join(proc, "sys", file), strconv.FormatUint(value, 10)); err != nil {
			errs = append(errs, fmt.Errorf("set %s to %d: %w", file, value, err))
		}
	}
	return errors.Join(errs...)
}

// overcommitAlways is include/uapi/linux/mman.h's OVERCOMMIT_ALWAYS.
const overcommitAlways = 1

// adminReserve is in MiB. The agent needs room for its threads' stacks, for the fork that
// becomes a container's first process, and for the 32nd of its address space that the
// kernel keeps from it. In a small machine it is a quarter of what may be reserved, which
// is half of the memory.
func adminReserve(total uint64) uint64 { return min(256, total/8) }
