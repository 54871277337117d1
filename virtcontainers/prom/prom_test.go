package prom

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// parse reads a text as Prometheus does.
func parse(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return families
}

func TestTextIsPrometheuss(t *testing.T) {
	var text Text
	text.Family("kata_shim_fds", Gauge, "Open files,\nand a \\.")
	text.Sample(3.5)
	text.Family("kata_guest_netdev_stat", Gauge, "Devices.")
	text.Sample(math.Inf(1), "interface", "a\"b\\c\nd", "item", "recv_bytes")
	text.Sample(1e18, "interface", "eth0", "item", "recv_bytes")
	text.Single("kata_agent_scrape_count", Counter, "Scrapes.", 7)
	got := parse(t, text.Bytes())
	if f := got["kata_shim_fds"]; f.GetHelp() != "Open files,\nand a \\." || f.GetMetric()[0].GetGauge().GetValue() != 3.5 {
		t.Errorf("%v", f)
	}
	net := got["kata_guest_netdev_stat"].GetMetric()
	if len(net) != 2 || net[0].GetLabel()[0].GetValue() != "a\"b\\c\nd" || !math.IsInf(net[0].GetGauge().GetValue(), 1) ||
		net[1].GetGauge().GetValue() != 1e18 {
		t.Errorf("%v", net)
	}
	if f := got["kata_agent_scrape_count"]; f.GetType() != dto.MetricType_COUNTER || f.GetMetric()[0].GetCounter().GetValue() != 7 {
		t.Errorf("%v", f)
	}
}

func TestDurations(t *testing.T) {
	var d Durations
	var empty Text
	d.Write(&empty, "none", "None.", "action", time.Second)
	if len(empty.Bytes()) != 0 {
		t.Errorf("without an observation: %s", empty.Bytes())
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			d.Observe("create", time.Millisecond)
			d.Observe("create", 1500*time.Millisecond)
			d.Observe("create", time.Hour)
		})
	}
	all.Wait()
	var text Text
	d.Write(&text, "calls", "Calls.", "action", time.Millisecond)
	h := parse(t, text.Bytes())["calls"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 12 || math.Abs(h.GetSampleSum()-4*(1+1500+3600e3)) > 1e-3 {
		t.Errorf("%v", h)
	}
	counts := make(map[float64]uint64)
	for _, b := range h.GetBucket() {
		counts[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	if counts[1] != 4 || counts[1000] != 4 || counts[2000] != 8 || counts[60000] != 8 || counts[math.Inf(1)] != 12 {
		t.Errorf("buckets: %v", counts)
	}
}

func TestDurationsAreBounded(t *testing.T) {
	var d Durations
	for i := range 10 * maxActions {
		d.Observe(fmt.Sprint(i), time.Second)
	}
	var text Text
	d.Write(&text, "calls", "Calls.", "action", time.Second)
	if n := strings.Count(string(text.Bytes()), "calls_count"); n != maxActions {
		t.Errorf("%d actions, want %d", n, maxActions)
	}
}
