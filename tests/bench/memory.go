package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// podMemory is what a pod costs the host, in KiB of PSS by kind of process,
// and its QEMU's command line.
type podMemory struct {
	pss    map[string]int64
	vmArgs []string
	// agentRSS is the agent's resident set, in bytes, as the shim logged it at
	// boot.
	agentRSS int64
}

// measurePod runs a pod of pause and four containers and removes it.
func measurePod(ctx context.Context, d *harness.Daemon, spec ...oci.SpecOpts) (m podMemory, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*runTimeout)
	defer cancel()
	mark := d.LogSize()
	pod, err := d.NewPod(ctx, "memory", spec...)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, pod.Remove(context.WithoutCancel(ctx))) }()
	for range 4 {
		c, err := pod.Add(ctx, harness.ContainerConfig{Name: "idle", Args: []string{"sleep", "100000"}})
		if err != nil {
			return m, err
		}
		if err := c.Start(ctx); err != nil {
			return m, err
		}
	}
	m.agentRSS = lastNumber(d.LogSince(mark, 1000), "agent_rss")
	return m, m.readProcesses(d)
}

func (m *podMemory) readProcesses(d *harness.Daemon) error {
	var err error
	if m.pss, err = pssByKind(d); err != nil {
		return err
	}
	vmm, err := d.One(harness.KindVMM)
	if err == nil {
		m.vmArgs, err = machineArgs(vmm.PID, d.Dir)
	}
	return err
}

// pssByKind sums up the memory of the daemon's pods, in KiB, by kind of process.
func pssByKind(d *harness.Daemon) (map[string]int64, error) {
	procs, err := d.Processes()
	if err != nil {
		return nil, err
	}
	pss := make(map[string]int64)
	for _, p := range procs {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
		if err != nil {
			return nil, fmt.Errorf("read memory of %v: %w", p, err)
		}
		pss[p.Kind()] += pssKiB(string(rollup))
	}
	return pss, nil
}

// pssKiB finds the Pss line of smaps_rollup (Documentation/ABI/testing/
// procfs-smaps_rollup).
func pssKiB(rollup string) int64 {
	for line := range strings.Lines(rollup) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
			return kib
		}
	}
	return 0
}
