package oci

import (
	"context"
	"fmt"
	"strings"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/client"
)

// Event is one line of the events command, with runc's field names.
type Event struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Data Stats  `json:"data"`
}

// Stats are a container's counters. Times are in nanoseconds, sizes in bytes.
type Stats struct {
	CPU    CPUStats    `json:"cpu"`
	Memory MemoryStats `json:"memory"`
	Pids   PidsStats   `json:"pids"`
}

// CPUStats is the CPU time that a container has used.
type CPUStats struct {
	Usage struct {
		Total  uint64 `json:"total"`
		Kernel uint64 `json:"kernel"`
		User   uint64 `json:"user"`
	} `json:"usage"`
	Throttling struct {
		Periods          uint64 `json:"periods"`
		ThrottledPeriods uint64 `json:"throttledPeriods"`
		ThrottledTime    uint64 `json:"throttledTime"`
	} `json:"throttling"`
}

// MemoryStats is a container's memory use.
type MemoryStats struct {
	Usage MemoryEntry `json:"usage"`
	Swap  MemoryEntry `json:"swap"`
}

// MemoryEntry is one kind of memory.
type MemoryEntry struct {
	Limit uint64 `json:"limit"`
	Usage uint64 `json:"usage"`
}

// PidsStats are a container's tasks.
type PidsStats struct {
	Current uint64 `json:"current"`
	Limit   uint64 `json:"limit"`
}

// Stats reads a container's counters from the guest.
func (r *Runtime) Stats(ctx context.Context, id string) (*Event, error) {
	event := &Event{Type: "stats", ID: id}
	err := r.with(ctx, id, func(ctx context.Context, _ *record, shim *client.Shim) error {
		resp, err := shim.Stats(ctx, &task.StatsRequest{ID: id})
		if err != nil {
			return err
		}
		return event.Data.decode(resp.Stats)
	})
	return event, err
}

// decode takes the metrics of cgroup v1 or v2, as the shim sends them: in the
// host's version.
func (s *Stats) decode(stats *anypb.Any) error {
	if strings.HasSuffix(stats.GetTypeUrl(), "cgroups.v2.Metrics") {
		var m v2.Metrics
		if err := decodeAny(stats, &m); err != nil {
			return err
		}
		s.fromV2(&m)
		return nil
	}
	var m v1.Metrics
	if err := decodeAny(stats, &m); err != nil {
		return err
	}
	s.fromV1(&m)
	return nil
}

func decodeAny(stats *anypb.Any, m proto.Message) error {
	if err := proto.Unmarshal(stats.GetValue(), m); err != nil {
		return fmt.Errorf("decode stats of type %q: %w", stats.GetTypeUrl(), err)
	}
	return nil
}

const nanosPerMicro = 1000

func (s *Stats) fromV2(m *v2.Metrics) {
	s.CPU.Usage.Total = m.GetCPU().GetUsageUsec() * nanosPerMicro
	s.CPU.Usage.User = m.GetCPU().GetUserUsec() * nanosPerMicro
	s.CPU.Usage.Kernel = m.GetCPU().GetSystemUsec() * nanosPerMicro
	s.CPU.Throttling.Periods = m.GetCPU().GetNrPeriods()
	s.CPU.Throttling.ThrottledPeriods = m.GetCPU().GetNrThrottled()
	s.CPU.Throttling.ThrottledTime = m.GetCPU().GetThrottledUsec() * nanosPerMicro
	s.Memory.Usage = MemoryEntry{m.GetMemory().GetUsageLimit(), m.GetMemory().GetUsage()}
	s.Memory.Swap = MemoryEntry{m.GetMemory().GetSwapLimit(), m.GetMemory().GetSwapUsage()}
	s.Pids = PidsStats{m.GetPids().GetCurrent(), m.GetPids().GetLimit()}
}

func (s *Stats) fromV1(m *v1.Metrics) {
	usage, throttling := m.GetCPU().GetUsage(), m.GetCPU().GetThrottling()
	s.CPU.Usage.Total, s.CPU.Usage.User, s.CPU.Usage.Kernel = usage.GetTotal(), usage.GetUser(), usage.GetKernel()
	s.CPU.Throttling.Periods, s.CPU.Throttling.ThrottledPeriods = throttling.GetPeriods(), throttling.GetThrottledPeriods()
	s.CPU.Throttling.ThrottledTime = throttling.GetThrottledTime()
	memory := m.GetMemory()
	s.Memory.Usage = MemoryEntry{memory.GetUsage().GetLimit(), memory.GetUsage().GetUsage()}
	s.Memory.Swap = MemoryEntry{memory.GetSwap().GetLimit(), memory.GetSwap().GetUsage()}
	s.Pids = PidsStats{m.GetPids().GetCurrent(), m.GetPids().GetLimit()}
}
