package guest

import (
	"github.com/katabox/katabox/virtcontainers/procstat"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// Write writes the numbers under Kata Containers' names.
func (m *Metrics) Write(t *prom.Text) {
	m.writeSystem(t)
	m.writeAgent(t)
}

func (m *Metrics) writeSystem(t *prom.Text) {
	procstat.WriteItems(t, "kata_guest_cpu_time", "The guest's CPU times, in clock ticks (/proc/stat).", "cpu", m.CPUs)
	procstat.WriteItems(t, "kata_guest_load", "The guest's load (/proc/loadavg).", "", m.Load)
	procstat.WriteItems(t, "kata_guest_tasks", "The guest's tasks: those that run, and all.", "", m.Tasks)
	procstat.WriteItems(t, "kata_guest_meminfo", "The guest's memory, in bytes (/proc/meminfo).", "", m.Memory)
	procstat.WriteItems(t, "kata_guest_vm_stat", "The guest's virtual memory (/proc/vmstat).", "", m.VM)
	procstat.WriteItems(t, "kata_guest_diskstat", "The guest's disks; times are in milliseconds (/proc/diskstats).", "disk", m.Disks)
	procstat.WriteItems(t, "kata_guest_netdev_stat", "The guest's network interfaces (/proc/net/dev).", "interface", m.Interfaces)
}

const (
	// ticks is the unit of CPU times in /proc (sysconf(_SC_CLK_TCK)).
	ticks = 100
	kib   = 1024
)

func (m *Metrics) writeAgent(t *prom.Text) {
	p := m.Agent
	cpu := (procstat.Find(p.Stat, "utime") + procstat.Find(p.Stat, "stime")) / ticks
	rss, size := procstat.Find(p.Status, "vmrss")*kib, procstat.Find(p.Status, "vmsize")*kib
	t.Single("kata_agent_process_cpu_seconds_total", prom.Counter, "CPU time of the agent.", cpu)
	t.Single("kata_agent_process_open_fds", prom.Gauge, "Open files of the agent.", float64(p.FDs))
	t.Single("kata_agent_process_resident_memory_bytes", prom.Gauge, "Resident memory of the agent.", rss)
	t.Single("kata_agent_process_virtual_memory_bytes", prom.Gauge, "Virtual memory of the agent.", size)
	t.Single("kata_agent_total_time", prom.Gauge, "CPU time of the agent, in seconds.", cpu)
	t.Single("kata_agent_total_rss", prom.Gauge, "Resident memory of the agent, in bytes.", rss)
	t.Single("kata_agent_total_vm", prom.Gauge, "Virtual memory of the agent, in bytes.", size)
	procstat.WriteItems(t, "kata_agent_proc_stat", "CPU times of the agent, in clock ticks (/proc/PID/stat).", "", p.Stat)
	procstat.WriteItems(t, "kata_agent_proc_status", "Memory, in KiB, and context switches of the agent (/proc/PID/status).", "", p.Status)
	procstat.WriteItems(t, "kata_agent_io_stat", "Input and output of the agent (/proc/PID/io).", "", p.IO)
}
