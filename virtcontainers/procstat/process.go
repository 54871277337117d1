package procstat

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is what /proc has about one process. Parts that could not be read are
// empty.
type Process struct {
	// Stat has utime, stime, cutime, cstime (clock ticks).
	Stat []Item
	// Status has the sizes, in KiB, and context switches, in lower case: "vmrss".
	Status []Item
	// IO has the counters of /proc/PID/io, under their own names.
	IO []Item
	// Threads and FDs count threads and open files.
	Threads, FDs int
}

// OfProcess reads a process's numbers. It fails when the process is gone.
func OfProcess(pid int) (Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	io, _ := os.ReadFile(filepath.Join(dir, "io"))
	fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
	return ParseProcess(stat, status, io, len(fds)), nil
}

// ParseProcess reads a process's stat, status and io.
func ParseProcess(stat, status, io []byte, fds int) Process {
	p := Process{FDs: fds}
	p.Stat, p.Threads = processTimes(stat)
	p.Status = processStatus(status)
	for line := range lines(io) {
		name, value, _ := strings.Cut(line, ":")
		p.IO = add(p.IO, "", name, strings.TrimSpace(value))
	}
	return p
}

// processTimes reads the fields 14 to 17 and 20 of /proc/PID/stat (proc_pid_stat(5)).
func processTimes(stat []byte) (times []Item, threads int) {
	// The second field is the command in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]), " ")
	fields := strings.Fields(rest) // from the third on
	const utime, count = 14 - 3, 20 - 3
	if len(fields) <= count {
		return nil, 0
	}
	n, _ := strconv.ParseUint(fields[count], 10, 16)
	return columns(nil, "", []string{"utime", "stime", "cutime", "cstime"}, fields[utime:]), int(n)
}

// processStatus reads the sizes and the context switches.
func processStatus(status []byte) []Item {
	var items []Item
	for line := range lines(status) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		size := len(fields) == 2 && fields[1] == "kB"
		if size || len(fields) == 1 && strings.HasSuffix(name, "_ctxt_switches") {
			items = add(items, "", strings.ToLower(name), fields[0])
		}
	}
	return items
}

// Find returns the value of that name, or 0.
func Find(items []Item, name string) float64 {
	for _, item := range items {
		if item.Name == name {
			return item.Value
		}
	}
	return 0
}
