package virtcontainers

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/procstat"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// The actions whose durations are counted. The spans, by contrast, are dropped
// after a while.
const (
	bootAction   = "boot"
	createAction = "create"
	startAction  = "start"
)

// timed begins a span of the container's, which the function that it returns
// ends; its duration is counted as the action's.
func (s *Sandbox) timed(container, span, action string) (end func()) {
	ended, start := s.recorder.Begin(container, span), time.Now()
	return func() {
		ended()
		s.durations.Observe(action, time.Since(start))
	}
}

// WriteMetrics writes the metrics of the machine, the guest and the agent, and the
// durations of starts, under Kata Containers' names. It calls the guest, bounded by
// ctx; without an answer it writes the rest.
func (s *Sandbox) WriteMetrics(ctx context.Context, t *prom.Text) {
	s.writeStarts(t)
	procstat.WriteProcess(t, "kata_hypervisor", "QEMU", s.vm.PID())
	m, err := s.guestMetrics(ctx)
	up := 1.0
	if err != nil {
		up = 0
	}
	t.Single("kata_shim_agent_up", prom.Gauge, "Whether the agent answered this scrape. If not, the guest's metrics are missing.", up)
	hibernates := 0.0
	if s.sleeper.hibernation() != nil {
		hibernates = 1
	}
	t.Single("kata_shim_hibernating", prom.Gauge, "Whether the pod hibernates: its agent is not asked then.", hibernates)
	if err == nil {
		m.Write(t)
	}
}

// errHibernates is why a guest is not asked for its numbers.
var errHibernates = fmt.Errorf("the sandbox hibernates: %w", errdefs.ErrUnavailable)

func (s *Sandbox) guestMetrics(ctx context.Context) (*guest.Metrics, error) {
	client, err := s.agent()
	if err != nil {
		return nil, err
	}
	leave, ok := s.sleeper.tryEnter()
	if !ok {
		return nil, errHibernates
	}
	defer leave()
	return client.Metrics(ctx)
}

// writeStarts writes how long the parts of the pod's start took.
func (s *Sandbox) writeStarts(t *prom.Text) {
	s.durations.Write(t, "kata_shim_starts_histogram_seconds", "Durations of the pod's boot, and of its containers' creations and starts.",
		"action", time.Second)
	s.client.WriteCalls(t)
	t.Family("kata_shim_boot_step_seconds", prom.Gauge, "How long each step of the boot took.")
	took := s.stepTimes()
	for _, step := range s.startSteps() {
		if d, done := took[step.name]; done {
			t.Sample(d.Seconds(), "step", step.name)
		}
	}
}

// stepTimes returns the durations of the pod's spans, those of the boot's steps among
// them. Of several with one name the first counts: each may be in the metrics once.
func (m *machine) stepTimes() map[string]time.Duration {
	list, _ := m.recorder.Spans()
	took := make(map[string]time.Duration, len(list))
	for _, span := range list {
		if _, known := took[span.Name]; !known && span.Container == "" {
			took[span.Name] = span.End - span.Start
		}
	}
	return took
}
