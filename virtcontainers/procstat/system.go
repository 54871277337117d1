package procstat

import (
	"regexp"
	"strings"
)

// cpuColumns are those of the cpu lines of /proc/stat (proc_stat(5)), in clock
// ticks.
var cpuColumns = []string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"}

// CPUs reads /proc/stat: each CPU's times, and those of all, "total".
func CPUs(stat []byte) []Item {
	var items []Item
	for line := range lines(stat) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		cpu, ok := strings.CutPrefix(fields[0], "cpu")
		if !ok {
			continue
		}
		if cpu == "" {
			cpu = "total"
		}
		items = columns(items, cpu, cpuColumns, fields[1:])
	}
	return items
}

// Load reads /proc/loadavg: the three loads, and how many tasks run and exist.
func Load(loadavg []byte) (load, tasks []Item) {
	fields := strings.Fields(string(loadavg))
	if len(fields) < 4 {
		return nil, nil
	}
	load = columns(nil, "", []string{"load1", "load5", "load15"}, fields)
	running, all, _ := strings.Cut(fields[3], "/")
	return load, columns(nil, "", []string{"cur", "max"}, []string{running, all})
}

// Memory reads /proc/meminfo. The names are Kata Containers': lower case with
// underscores ("mem_total"); sizes are in bytes.
func Memory(meminfo []byte) []Item {
	var items []Item
	for line := range lines(meminfo) {
		name, rest, ok := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) == 0 || len(name) > maxName {
			continue
		}
		before := len(items)
		items = add(items, "", memoryName(name), fields[0])
		if len(items) > before && len(fields) > 1 && fields[1] == "kB" {
			items[before].Value *= 1024
		}
	}
	return items
}

var (
	wordEnd  = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])|([a-z])([0-9])`)
	brackets = strings.NewReplacer("(", "_", ")", "", "HugePages", "Hugepages", "Percpu", "PerCpu")
)

// memoryName separates the words of a name in /proc/meminfo.
func memoryName(name string) string {
	return strings.ToLower(wordEnd.ReplaceAllString(brackets.Replace(name), "$1$3${5}_$2$4$6"))
}

// VM reads /proc/vmstat.
func VM(vmstat []byte) []Item {
	var items []Item
	for line := range lines(vmstat) {
		if fields := strings.Fields(line); len(fields) == 2 {
			items = add(items, "", fields[0], fields[1])
		}
	}
	return items
}

// diskColumns are those of /proc/diskstats after the name (the kernel's
// Documentation/admin-guide/iostats.rst), times in milliseconds.
var diskColumns = []string{
	"reads", "merged", "sectors_read", "time_reading", "writes", "writes_merged", "sectors_written", "time_writing",
	"in_progress", "time_in_progress", "weighted_time_in_progress",
	"discards", "discards_merged", "sectors_discarded", "time_discarding", "flushes", "time_flushing",
}

// Disks reads /proc/diskstats.
func Disks(diskstats []byte) []Item {
	var items []Item
	for line := range lines(diskstats) {
		// Major and minor number, name, counters.
		if fields := strings.Fields(line); len(fields) > 3 {
			items = columns(items, fields[2], diskColumns, fields[3:])
		}
	}
	return items
}

// netColumns are those of /proc/net/dev (proc_pid_net(5)).
var netColumns = []string{
	"recv_bytes", "recv_packets", "recv_errs", "recv_drop", "recv_fifo", "recv_frame", "recv_compressed", "recv_multicast",
	"sent_bytes", "sent_packets", "sent_errs", "sent_drop", "sent_fifo", "sent_colls", "sent_carrier", "sent_compressed",
}

// Interfaces reads /proc/net/dev.
func Interfaces(dev []byte) []Item {
	var items []Item
	for line := range lines(dev) {
		// The two heading lines have no colon. An alias's name may have one.
		colon := strings.LastIndexByte(line, ':')
		if colon < 0 {
			continue
		}
		items = columns(items, strings.TrimSpace(line[:colon]), netColumns, strings.Fields(line[colon+1:]))
	}
	return items
}
