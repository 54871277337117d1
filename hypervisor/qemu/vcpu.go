package qemu

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/katabox/katabox/hypervisor"
)

// vcpu is one of the machine's vCPUs (qapi/machine.json, CpuInfoFast).
type vcpu struct {
	Index    int `json:"cpu-index"`
	ThreadID int `json:"thread-id"`
}

// VCPUThreads implements hypervisor.VCPUThreader. QEMU reports its threads' ids
// in its own PID namespace; only threads that the host finds in QEMU's process
// are accepted.
func (vm *VM) VCPUThreads(ctx context.Context) (found []int, used int, err error) {
	const what = "find vCPU threads of virtual machine"
	var cpus []vcpu
	if err := vm.mon.Execute(ctx, "query-cpus-fast", nil, &cpus); err != nil {
		return nil, 0, vm.explain(ctx, what, err)
	}
	ids, err := threads(vm.PID())
	if err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", what, vm.id, err)
	}
	if found, err = inOrder(cpus, ids); err != nil {
		return nil, 0, fmt.Errorf("%s %s: process %d has %w", what, vm.id, vm.PID(), err)
	}
	if used = len(found); vm.spec.Accel == hypervisor.AccelTCG {
		used = min(used, int(vm.given())) // all threads exist from the start
	}
	return found, used, nil
}

// inOrder lists the threads of vCPUs by their ids on the host, ordered by vCPU.
// QEMU lists the vCPUs in the order in which they were plugged.
func inOrder(cpus []vcpu, ids map[int]int) ([]int, error) {
	slices.SortFunc(cpus, func(a, b vcpu) int { return cmp.Compare(a.Index, b.Index) })
	var found []int
	for _, c := range cpus {
		id, ok := ids[c.ThreadID]
		if !ok {
			return nil, fmt.Errorf("no thread %d", c.ThreadID)
		}
		// TCG may run all vCPUs on one thread.
		if !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	return found, nil
}

// threads maps the ids of a process's threads in their innermost PID namespace
// to those on the host.
func threads(pid int) (map[int]int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	ids := make(map[int]int, len(entries))
	for _, e := range entries {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, e.Name()))
		if err != nil {
			continue // it has ended
		}
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		ids[innermost(status, id)] = id
	}
	return ids, nil
}

// innermost returns the last of the ids in a status file (proc(5), NSpid), or
// id on a kernel without PID namespaces.
func innermost(status []byte, id int) int {
	for line := range bytes.Lines(status) {
		ids, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		fields := bytes.Fields(ids)
		if len(fields) == 0 {
			break
		}
		if inner, err := strconv.Atoi(string(fields[len(fields)-1])); err == nil {
			return inner
		}
	}
	return id
}
