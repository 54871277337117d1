package virtcontainers_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// scrape reads the pod's metrics as Prometheus does.
func (p *pod) scrape() map[string]*dto.MetricFamily {
	p.t.Helper()
	var text prom.Text
	p.WriteMetrics(p.t.Context(), &text)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text.Bytes()))
	if err != nil {
		p.t.Fatalf("%v in\n%s", err, text.Bytes())
	}
	return families
}

// counted returns how often each action was observed.
func counted(f *dto.MetricFamily) map[string]uint64 {
	counts := make(map[string]uint64)
	for _, m := range f.GetMetric() {
		counts[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
	}
	return counts
}

func TestMetrics(t *testing.T) {
	p := newPod(t)
	p.run("c1")
	p.run("c2")
	p.host.Agent.Measure(&api.MetricsResponse{
		Meminfo: []byte("MemTotal: 4 kB\n"), Stat: []byte("cpu 1 2\ncpu 3 4\n"), AgentStatus: []byte("VmRSS: 7 kB\n"), AgentFds: 9,
	})
	got := p.scrape()
	starts := counted(got["kata_shim_starts_histogram_seconds"])
	if starts["boot"] != 1 || starts["create"] != 2 || starts["start"] != 2 {
		t.Errorf("starts: %v", starts)
	}
	if calls := counted(got["kata_shim_agent_rpc_durations_histogram_milliseconds"]); calls["Create"] != 2 || calls["SetupSandbox"] != 1 {
		t.Errorf("calls of the agent: %v", calls)
	}
	if n, want := len(got["kata_shim_boot_step_seconds"].GetMetric()), len(virtcontainers.BootSteps()); n != want {
		t.Errorf("%d steps, want %d", n, want)
	}
	for name, want := range map[string]float64{
		"kata_shim_agent_up": 1, "kata_guest_meminfo": 4096, "kata_agent_process_open_fds": 9, "kata_agent_total_rss": 7168,
	} {
		if v := got[name].GetMetric(); len(v) != 1 || v[0].GetGauge().GetValue() != want {
			t.Errorf("%s: %v, want %v", name, v, want)
		}
	}
	// A duplicate line would make the scrape invalid.
	if n := len(got["kata_guest_cpu_time"].GetMetric()); n != 2 {
		t.Errorf("%d samples of the CPU, want 2", n)
	}
}

// The metrics have every step of a restored boot, whose order is another.
func TestMetricsOfARestoredBoot(t *testing.T) {
	s := newSaver(t)
	s.saveAndEnd()
	next := s.restored(s.restoration("next"))
	has := make(map[string]int)
	for _, m := range next.scrape()["kata_shim_boot_step_seconds"].GetMetric() {
		has[m.GetLabel()[0].GetValue()]++
	}
	for _, step := range append(virtcontainers.BootSteps(), "files", "load") {
		if has[step] != 1 {
			t.Errorf("step %s is there %d times", step, has[step])
		}
	}
}

// When the guest does not answer, only its numbers are missing, not the host's.
func TestMetricsWithoutTheGuest(t *testing.T) {
	p := newPod(t)
	p.host.Agent.Fail("Metrics", errInjected)
	got := p.scrape()
	if up := got["kata_shim_agent_up"].GetMetric(); len(up) != 1 || up[0].GetGauge().GetValue() != 0 {
		t.Errorf("up: %v, want 0", up)
	}
	if got["kata_guest_meminfo"] != nil || got["kata_shim_starts_histogram_seconds"] == nil {
		t.Errorf("families: %v", got)
	}
}

// The management socket is in the sandbox's directory while it runs, and
// describes it; a sandbox without the socket still runs.
func TestManagement(t *testing.T) {
	for _, failing := range []bool{false, true} {
		host := newHost(t)
		opts := options(newObserver())
		opts.Pod = bundle.PodName{Name: "web", Namespace: "shop"}
		offered, stopped := "", false
		opts.Manage = func(_ context.Context, s *virtcontainers.Sandbox, dir string) (func() error, error) {
			if failing {
				return nil, errInjected
			}
			if _, err := os.Stat(filepath.Join(dir, "state.json")); err != nil {
				t.Error(err)
			}
			offered = dir
			return func() error {
				stopped = true
				return s.Ping(context.Background()) // the guest still answers
			}, nil
		}
		sandbox, err := virtcontainers.New(t.Context(), host.Platform(), opts)
		if err != nil {
			t.Fatal(err)
		}
		p := &pod{Sandbox: sandbox, t: t, host: host}
		c := p.run("c1")
		d := sandbox.Describe()
		if d.Pod != opts.Pod || d.ID != sandboxID || len(d.Containers) != 1 || d.Containers[0].ID != "c1" || d.Containers[0].State != "running" ||
			d.Containers[0].PID != c.PID() || d.AgentVersion != "fake" {
			t.Errorf("%+v", d)
		}
		if err := sandbox.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if stopped == failing {
			t.Errorf("failing %v: stopped %v", failing, stopped)
		}
		if _, err := os.Stat(offered); offered != "" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", offered, err)
		}
	}
}
