package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/katabox/katabox/tests/harness"
)

// maxShimPSS bounds what a shim of a pod with four containers costs the host
// once it was scraped, in KiB: a fifth more than was seen.
const maxShimPSS = 28 << 10

// A running pod serves metrics for Prometheus: the host's, the guest's and the
// agent's, which differ.
func TestManagementSocket(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod, err := d.NewPod(ctx, "pod", oci.WithAnnotations(map[string]string{"io.katacontainers.config.runtime.enable_pprof": "true"}))
		if err != nil {
			t.Fatalf("make pod: %v", err)
		}
		t.Cleanup(func() { removed(t, "pod", pod.Remove) })
		for range 4 {
			idle(ctx, t, pod)
		}
		socket := filepath.Join("/run/kata-containers/sandboxes", d.HostName(pod.Sandbox.Box.ID()), "shim-monitor.sock")
		t.Logf("the shim's PSS: %d KiB", shimPSS(t, d))
		first := scrape(ctx, t, socket)
		scrape(ctx, t, socket)
		after := shimPSS(t, d)
		t.Logf("after two scrapes: %d KiB", after)
		if after > maxShimPSS {
			t.Errorf("the shim's PSS is %d KiB, want at most %d", after, maxShimPSS)
		}
		for _, name := range []string{
			"kata_shim_fds", "kata_shim_threads", "kata_shim_proc_status", "kata_shim_io_stat", "kata_shim_go_goroutines",
			"kata_shim_rpc_durations_histogram_milliseconds", "kata_shim_agent_rpc_durations_histogram_milliseconds",
			"kata_shim_starts_histogram_seconds", "kata_shim_boot_step_seconds",
			"kata_hypervisor_fds", "kata_hypervisor_threads", "kata_hypervisor_proc_stat", "kata_hypervisor_proc_status", "kata_hypervisor_io_stat",
			"kata_guest_cpu_time", "kata_guest_load", "kata_guest_tasks", "kata_guest_meminfo", "kata_guest_vm_stat", "kata_guest_netdev_stat",
			"kata_agent_process_cpu_seconds_total", "kata_agent_proc_status", "kata_agent_io_stat", "kata_agent_total_rss",
		} {
			if first[name] == nil {
				t.Errorf("no %s", name)
			}
		}
		agent, qemu := first["kata_agent_total_rss"].GetMetric()[0].GetGauge().GetValue(), gauge(first["kata_hypervisor_proc_status"], "vmrss")*1024
		if total := gauge(first["kata_guest_meminfo"], "mem_total"); agent <= 0 || agent >= total || total <= 64<<20 || qemu <= 0 {
			t.Errorf("the agent has %.0f bytes of the guest's %.0f, QEMU %.0f", agent, total, qemu)
		}
		checkDashboard(ctx, t, d, pod.Sandbox.Box.ID())
		if status, body := ask(ctx, t, socket, "/healthz"); status != http.StatusOK {
			t.Errorf("health: %d, %s", status, body)
		}
		if status, body := ask(ctx, t, socket, "/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(body, "virtcontainers") {
			t.Errorf("profile: %d, %.200s", status, body)
		}
	})
}

// metricName is a metric's name in a query.
var metricName = regexp.MustCompile(`kata_(shim|hypervisor|guest|agent)_\w+`)

// checkDashboard checks that kata-runtime's metrics, of all pods and of one,
// have what the dashboard queries.
func checkDashboard(ctx context.Context, t *testing.T, d *harness.Daemon, id string) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/grafana-dashboard.json")
	if err != nil || !json.Valid(data) {
		t.Fatalf("the dashboard is not JSON, or not there: %v", err)
	}
	one, err := kataRuntime(ctx, d, "metrics", id).Output()
	if err != nil {
		t.Fatalf("kata-runtime metrics: %v", err)
	}
	all, err := kataRuntime(ctx, d, "metrics", "--all").Output()
	if !strings.Contains(string(all), `sandbox_id="`+id+`"`) {
		t.Errorf("the pod is not among all: %v", err) // another test's pod may be ending
	}
	names := metricName.FindAllString(string(data), -1)
	for _, name := range names {
		if !strings.Contains(string(one), "\n"+name) {
			t.Errorf("the dashboard asks for %s, which there is not", name)
		}
	}
	if len(names) == 0 {
		t.Error("the dashboard asks for nothing")
	}
}

// ask makes one request, as any client of HTTP does.
func ask(ctx context.Context, t *testing.T, socket, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://pod"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func scrape(ctx context.Context, t *testing.T, socket string) map[string]*dto.MetricFamily {
	t.Helper()
	status, body := ask(ctx, t, socket, "/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if status != http.StatusOK || err != nil {
		t.Fatalf("scrape: %d, %v", status, err)
	}
	return families
}

// gauge is the value of the item of that name.
func gauge(f *dto.MetricFamily, item string) float64 {
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "item" && l.GetValue() == item {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// shimPSS is what the only shim costs, in KiB.
func shimPSS(t *testing.T, d *harness.Daemon) (kib int) {
	t.Helper()
	procs, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if p.Kind() == harness.KindShim {
			kib = pssOf(t, p.PID)
		}
	}
	return kib
}

// pssOf is a process's proportional share of memory (proc(5), smaps_rollup).
func pssOf(t *testing.T, pid int) (kib int) {
	t.Helper()
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, pss, _ := strings.Cut(string(rollup), "\nPss:")
	if _, err := fmt.Sscan(pss, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
