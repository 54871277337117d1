package guest

import (
	"bytes"
	"testing"

	"github.com/katabox/katabox/agent/api"
)

// Files beyond their bound are cut: the number of the samples does not grow with
// what a guest sends.
func TestMetricsAreBounded(t *testing.T) {
	long := bytes.Repeat([]byte("a 1\n"), api.MaxProcFile)
	cpus := bytes.Repeat([]byte("cpu1 1 2 3 4 5 6 7 8 9 10\n"), api.MaxProcFile)
	m := measured(&api.MetricsResponse{Stat: cpus, Vmstat: long, Meminfo: bytes.ReplaceAll(long, []byte("a "), []byte("a:")), AgentFds: 1<<32 - 1})
	if len(m.CPUs) > 1024 || len(m.VM) > 1024 || len(m.Memory) > 1024 || m.Agent.FDs != maxFDs {
		t.Errorf("%d, %d and %d items, %d descriptors", len(m.CPUs), len(m.VM), len(m.Memory), m.Agent.FDs)
	}
	if len(m.CPUs) == 0 || len(m.VM) == 0 || len(m.Memory) == 0 {
		t.Error("nothing was read")
	}
}
