package guest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/spans"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// clockOf compares the clocks by an answer to Hello, called at asked.
func clockOf(asked time.Time, nowUS uint64) timeline.Clock {
	slack := time.Since(asked) / 2
	return timeline.Clock{Host: asked.Add(slack), Guest: microseconds(nowUS), Slack: slack}
}

// maxTime is the longest time accepted from a guest: none has run for a
// century.
const maxTime = 100 * 365 * 24 * time.Hour

// microseconds is a guest's time, bounded.
func microseconds(us uint64) time.Duration {
	if us > math.MaxInt64/uint64(time.Microsecond) {
		return maxTime
	}
	return min(time.Duration(us)*time.Microsecond, maxTime)
}

// clockCalls is how often the guest is asked for its time: the result of the
// fastest call is used.
const clockCalls = 5

// CompareClocks asks the guest for its time.
func (c *Client) CompareClocks(ctx context.Context) (timeline.Clock, error) {
	var best timeline.Clock
	for i := range clockCalls {
		asked := time.Now()
		info, err := c.guest().Hello(ctx, &api.HelloRequest{ProtocolVersion: api.ProtocolVersion})
		if err != nil {
			return timeline.Clock{}, fmt.Errorf("ask the guest for its time: %w", Err(err))
		}
		if clock := clockOf(asked, info.NowUs); i == 0 || clock.Slack < best.Slack {
			best = clock
		}
	}
	return best, nil
}

// Timeline returns the agent's spans of the guest's and its containers' starts,
// and how many it has dropped. Times count from the start of the guest's
// kernel. The guest is not trusted: number, lengths and times are bounded,
// names are printable ASCII, and no span ends before its start.
func (c *Client) Timeline(ctx context.Context) (list []spans.Span, forgotten int, err error) {
	resp, err := c.guest().Timeline(ctx, &api.TimelineRequest{})
	if err != nil {
		return nil, 0, fmt.Errorf("read the guest's timeline: %w", Err(err))
	}
	list, forgotten = believe(resp)
	return list, forgotten, nil
}

// believe bounds a guest's answer. Spans without a valid id or a name are
// dropped.
func believe(resp *api.TimelineResponse) (list []spans.Span, forgotten int) {
	said := resp.GetSpans()
	forgotten = int(min(resp.GetForgotten(), math.MaxInt32))
	if len(said) > api.MaxSpans {
		forgotten += len(said) - api.MaxSpans
		said = said[:api.MaxSpans]
	}
	for _, s := range said {
		name := printable(s.GetName())
		if s.GetContainerId() != "" && bundle.CheckID(s.GetContainerId()) != nil || name == "" {
			forgotten++
			continue
		}
		start := microseconds(s.GetStartUs())
		list = append(list, spans.Span{
			Container: s.GetContainerId(), Name: name, Start: start, End: max(start, microseconds(s.GetEndUs())),
		})
	}
	return list, forgotten
}

// printable returns the beginning of a name, with unprintable characters
// replaced.
func printable(name string) string {
	name = name[:min(len(name), api.MaxSpanName)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// BootTimes returns when, after the kernel's start, the agent ran its first
// instruction and when it began to serve, as the guest reports.
func (c *Client) BootTimes() (agent, serving time.Duration) {
	return microseconds(c.Info.BootToAgentUs), microseconds(c.Info.BootToServingUs)
}
