package guest

import (
	"bytes"
	"os"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// Whatever a guest sends, the output is bounded and valid for Prometheus.
func FuzzMetrics(f *testing.F) {
	for _, file := range []string{"stat", "meminfo", "vmstat", "diskstats", "net/dev", "self/status"} {
		data, _ := os.ReadFile("/proc/" + file)
		f.Add(data)
	}
	f.Add([]byte("cpu 1 2\ncpu 3 4\neth0: 1\neth0: 2\n1 1 a\" 1\nMemFree: 1 kB\nMemFree: 2\nvmrss: 1e309 kB\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := measured(&api.MetricsResponse{
			Stat: data, Loadavg: data, Meminfo: data, Vmstat: data, Diskstats: data, NetDev: data,
			AgentStat: data, AgentStatus: data, AgentIo: data, AgentFds: uint32(len(data)),
		})
		var text prom.Text
		m.Write(&text)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, text.Bytes())
		}
		for name, family := range families {
			seen := make(map[string]bool)
			for _, metric := range family.GetMetric() {
				labels := metric.String()
				if i := bytes.LastIndex([]byte(labels), []byte("gauge")); i > 0 {
					labels = labels[:i]
				}
				if seen[labels] {
					t.Fatalf("%s has two samples of %s", name, labels)
				}
				seen[labels] = true
			}
		}
		if len(text.Bytes()) > 1<<20 {
			t.Fatalf("%d bytes", len(text.Bytes()))
		}
	})
}
