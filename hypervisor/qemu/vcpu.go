package qemu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/katabox/katabox/hypervisor"
)

var _ hypervisor.VCPUThreader = (*VM)(nil)

// VCPUThreads implements hypervisor.VCPUThreader. QEMU knows its threads by
// the ids of its own PID namespace; only such as the host finds in QEMU's
// process are taken.
func (vm *VM) VCPUThreads(ctx context.Context) ([]int, error) {
	const what = "find vCPU threads of virtual machine"
	var cpus []struct {
		ThreadID int `json:"thread-id"` // qapi/machine.json, CpuInfoFast
	}
	if err := vm.mon.Execute(ctx, "query-cpus-fast", nil, &cpus); err != nil {
		return nil, vm.explain(ctx, what, err)
	}
	ids, err := threads(vm.PID())
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, vm.id, err)
	}
	var found []int
	for _, cpu := range cpus {
		id, ok := ids[cpu.ThreadID]
		if !ok {
			return nil, fmt.Errorf("%s %s: process %d has no thread %d", what, vm.id, vm.PID(), cpu.ThreadID)
		}
		// TCG may run all vCPUs by one thread.
		if !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	return found, nil
}

// threads lists a process's threads: by their ids in the innermost PID
// namespace they are in, those that the host knows them by.
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

// innermost is the last of the ids that a status names (proc(5), NSpid), or
// else for a kernel without PID namespaces.
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
