package procstat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/katabox/katabox/virtcontainers/prom"
)

// WriteProcess writes the numbers of one of the host's processes; names begin
// with prefix. It writes nothing if the process is gone.
func WriteProcess(t *prom.Text, prefix, who string, pid int) {
	p, err := OfProcess(pid)
	if err != nil {
		return
	}
	t.Single(prefix+"_fds", prom.Gauge, "Open files of "+who+".", float64(p.FDs))
	t.Single(prefix+"_threads", prom.Gauge, "Threads of "+who+".", float64(p.Threads))
	WriteItems(t, prefix+"_proc_stat", fmt.Sprintf("CPU times of %s, in clock ticks (/proc/PID/stat).", who), "", p.Stat)
	WriteItems(t, prefix+"_proc_status", fmt.Sprintf("Memory, in KiB, and context switches of %s (/proc/PID/status).", who), "", p.Status)
	WriteItems(t, prefix+"_io_stat", fmt.Sprintf("Input and output of %s (/proc/PID/io).", who), "", joined(p.IO))
}

// joined returns items without underscores in their names: Kata Containers
// names them so for the host's processes ("readbytes"), but not for the agent.
func joined(items []Item) []Item {
	list := slices.Clone(items)
	for i := range list {
		list[i].Name = strings.ReplaceAll(list[i].Name, "_", "")
	}
	return list
}

// WriteItems writes a family of numbers, each once; device is the label for
// their devices, or empty.
func WriteItems(t *prom.Text, name, help, device string, items []Item) {
	if len(items) == 0 {
		return
	}
	t.Family(name, prom.Gauge, help)
	for _, item := range once(items) {
		if device == "" {
			t.Sample(item.Value, "item", item.Name)
		} else {
			t.Sample(item.Value, device, item.Device, "item", item.Name)
		}
	}
}

// once drops duplicates: a guest may send a line twice, and one duplicate
// sample invalidates a whole scrape.
func once(items []Item) []Item {
	type key struct{ device, name string }
	seen := make(map[key]bool, len(items))
	unique := make([]Item, 0, len(items))
	for _, item := range items {
		if k := (key{item.Device, item.Name}); !seen[k] {
			seen[k] = true
			unique = append(unique, item)
		}
	}
	return unique
}
