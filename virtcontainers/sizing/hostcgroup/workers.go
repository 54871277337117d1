package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// follow moves the VM's vhost workers to where the VM's process is.
//
// Before Linux 6.4, and later with the module parameter fork_from_owner_default=0,
// a vhost device of the kernel (network, vsock) has a kernel thread, which begins in the
// cgroups that the process is in when it takes the device (drivers/vhost/vhost.c,
// vhost_attach_cgroups). It is none of the process's threads, and stays there when the
// process is moved. Otherwise the workers are threads of the process.
//
// The process must have been moved: the workers of later devices begin in its cgroups.
func (c *Cgroup) follow(vm int) error {
	workers, err := c.workersOf(vm)
	if err != nil || len(workers) == 0 {
		return err
	}
	vms, err := cgroupsOf(vm)
	if err != nil {
		return err
	}
	for _, id := range workers {
		if err := c.moveWorker(id, vms); err != nil && !ended(err) {
			return fmt.Errorf("vhost's thread: %w", err)
		}
	}
	return nil
}

// moveWorker moves a worker to the cgroups of the VM's /proc/PID/cgroup.
func (c *Cgroup) moveWorker(id int, vms []byte) error {
	now, err := cgroupsOf(id)
	if err != nil {
		return err
	}
	for _, p := range c.places {
		if err := p.moveFrom(now, p.of(vms), id); err != nil {
			return err
		}
	}
	return nil
}

// ended reports whether err is that of a process that has ended.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// kthreadd is the process whose children are the kernel's threads (init/main.c).
const kthreadd = 2

// workersOf returns the VM's vhost workers that are kernel threads. Those are named
// after the VM's process and younger than it. The kernel lists them in the order in
// which they began, so only the threads that are younger than the VM are read. On a
// host whose kernel has no such list (CONFIG_PROC_CHILDREN) none is found. The list
// may lack one when another thread ends meanwhile; the next AddVM finds it.
func (c *Cgroup) workersOf(vm int) ([]int, error) {
	list, err := words(filepath.Join(c.proc, fmt.Sprintf("%d/task/%[1]d/children", kthreadd)))
	if err != nil && !ended(err) {
		return nil, fmt.Errorf("list the kernel's threads: %w", err)
	}
	machine, err := c.taskOf(strconv.Itoa(vm))
	if err != nil {
		return nil, err
	}
	var found []int
	for _, id := range slices.Backward(list) {
		t, err := c.taskOf(id)
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if t.began < machine.began {
			break
		}
		if t.kernel && t.name == fmt.Sprintf("vhost-%d", vm) {
			found = append(found, t.id)
		}
	}
	return found, nil
}

// task is what a process's stat has about it.
type task struct {
	id   int
	name string
	// kernel is set for a thread of the kernel, which began in clock ticks since the
	// host's boot.
	kernel bool
	began  uint64
}

func (c *Cgroup) taskOf(id string) (task, error) {
	stat, err := os.ReadFile(filepath.Join(c.proc, id, "stat"))
	if err != nil {
		return task{}, fmt.Errorf("inspect process: %w", err)
	}
	t, err := parseTask(string(stat))
	if err != nil {
		return task{}, fmt.Errorf("inspect process %s: %w", id, err)
	}
	return t, nil
}

// kernelFlag marks the kernel's threads (PF_KTHREAD in include/linux/sched.h).
const kernelFlag = 0x200000

// parseTask reads a /proc/PID/stat (proc_pid_stat(5)): the second field is the name in
// parentheses and may hold anything, the others are numbers or single letters.
func parseTask(stat string) (task, error) {
	const flags, starttime = 9 - 3, 22 - 3
	id, rest, _ := strings.Cut(stat, " (")
	end := max(0, strings.LastIndex(rest, ") "))
	fields := strings.Fields(rest[min(end+1, len(rest)):]) // from the third on
	if len(fields) <= starttime {
		return task{}, fmt.Errorf("its stat has %d fields, want at least 22", len(fields)+2)
	}
	t := task{name: rest[:end]}
	var errs [3]error
	var bits uint64
	t.id, errs[0] = strconv.Atoi(id)
	bits, errs[1] = strconv.ParseUint(fields[flags], 10, 64)
	t.began, errs[2] = strconv.ParseUint(fields[starttime], 10, 64)
	t.kernel = bits&kernelFlag != 0
	return t, errors.Join(errs[:]...)
}
