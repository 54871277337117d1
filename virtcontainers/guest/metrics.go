package guest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/procstat"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// Metrics are the numbers that a guest reports about itself.
type Metrics struct {
	CPUs, Load, Tasks, Memory, VM, Disks, Interfaces []procstat.Item
	// Agent has the numbers of the agent's process.
	Agent procstat.Process
}

// Metrics asks the guest for its numbers, and bounds the answer.
func (c *Client) Metrics(ctx context.Context) (*Metrics, error) {
	resp, err := c.guest().Metrics(ctx, &api.MetricsRequest{})
	if err != nil {
		return nil, fmt.Errorf("read the guest's metrics: %w", Err(err))
	}
	return measured(resp), nil
}

// maxFDs is more than the agent may have open.
const maxFDs = 1 << 20

func measured(resp *api.MetricsResponse) *Metrics {
	m := &Metrics{
		CPUs: procstat.CPUs(cut(resp.GetStat())), Memory: procstat.Memory(cut(resp.GetMeminfo())), VM: procstat.VM(cut(resp.GetVmstat())),
		Disks: procstat.Disks(cut(resp.GetDiskstats())), Interfaces: procstat.Interfaces(cut(resp.GetNetDev())),
		Agent: procstat.ParseProcess(cut(resp.GetAgentStat()), cut(resp.GetAgentStatus()), cut(resp.GetAgentIo()), int(min(resp.GetAgentFds(), maxFDs))),
	}
	m.Load, m.Tasks = procstat.Load(cut(resp.GetLoadavg()))
	return m
}

func cut(file []byte) []byte { return file[:min(len(file), api.MaxProcFile)] }

// WriteCalls writes how long the calls of the agent took.
func (c *Client) WriteCalls(t *prom.Text) {
	c.calls.Write(t, "kata_shim_agent_rpc_durations_histogram_milliseconds", "Durations of the calls of the agent, but for those that wait.",
		"action", time.Millisecond)
}

// observed returns an interceptor that records the durations of calls, except
// Wait's, which is how long a process ran.
func observed(calls *prom.Durations, next ttrpc.UnaryClientInterceptor) ttrpc.UnaryClientInterceptor {
	return func(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, info *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
		start := time.Now()
		err := next(ctx, req, resp, info, invoke)
		if method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]; method != "Wait" {
			calls.Observe(method, time.Since(start))
		}
		return err
	}
}
