package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The shipped dashboard can be drawn from any answers.
func TestDraw(t *testing.T) {
	b, err := readBoard("../../../deploy/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Unix(1_000_000, 0)
	to := from.Add(10 * time.Minute)
	pic := newPicture(b)
	for i := range b.Panels {
		p := &b.Panels[i]
		if len(p.Targets) == 0 || p.Pos.X+p.Pos.W > 24 {
			t.Errorf("panel %q: %d queries, at %+v", p.Title, len(p.Targets), p.Pos)
		}
		pic.panel(p, []line{{"<a>", []point{{1_000_060, 1.5}, {1_000_070, math.NaN()}, {1_000_080, 3}}}, {"b", []point{{1_000_060, 0}}}}, from, to)
	}
	text := pic.end()
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v", err)
		}
	}
	for _, want := range []string{"&lt;a&gt;", "Memory on the host", "Slowest boot"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if strings.Contains(text, "NaN") {
		t.Error("a point without a number is drawn")
	}
}

func TestAnswers(t *testing.T) {
	var s series
	if err := json.Unmarshal([]byte(`{"metric": {"a": "x"}, "values": [[1.5, "2"], [3, "NaN"]]}`), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Values) != 2 || s.Values[0] != (point{1.5, 2}) || !math.IsNaN(s.Values[1].value) || legend("{{a}}/{{b}} up", s.Labels) != "x/{{b}} up" {
		t.Errorf("%+v", s)
	}
	got := []string{format("bytes", 3<<20), format("Bps", 1536), format("s", 4.2), format("none", 0.25), format("bytes", 5<<40)}
	if diff := cmp.Diff([]string{"3 MiB", "1.5 KiB/s", "4.2 s", "0.25", "5120 GiB"}, got); diff != "" {
		t.Error(diff)
	}
	for _, test := range []struct {
		unit       string
		most, want float64
	}{{"none", 0, 1}, {"s", 0.3, 0.4}, {"s", 1, 1}, {"ms", 3, 4}, {"none", 90, 100}, {"none", 1500, 2000}, {"bytes", 300 << 20, 400 << 20}, {"Bps", 1025, 2048}} {
		if got := top(test.unit, []line{{points: []point{{0, test.most}}}}); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("above %v %s: %v, want %v", test.most, test.unit, got, test.want)
		}
	}
}
