package timeline

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/internal/spans"
)

var update = flag.Bool("update", false, "write the golden files anew")

// zero is when the tests' pod began.
var zero = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func at(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
func atTime(ms float64) time.Time { return zero.Add(at(ms)) }
func clock(host, guest, slack float64) Clock {
	return Clock{Host: atTime(host), Guest: at(guest), Slack: at(slack)}
}

// pod is a pod whose kernel started 210 ms after the engine's call, with a
// container that came an hour later.
func pod() *Timeline {
	r := spans.New(zero)
	for _, s := range []struct {
		container, name string
		start, end      float64
	}{
		{"", "shim", 0, 42.5}, {"", "boot", 50, 1300}, {"", "state", 50, 52}, {"", "vm", 60, 190.25},
		{"", "qemu", 61, 189}, {"", "resume", 200, 202}, {"", "agent", 202, 1280}, {"", "guest", 1280, 1299},
		{"web", "create call", 1300, 1500}, {"web", "create", 1310, 1490}, {"web", "start call", 1510, 1560},
		{"web", "first output", 1570, 1570},
		{"later-<&>", "create call", 3_600_000, 3_600_150},
	} {
		r.Add(s.container, s.name, atTime(s.start), atTime(s.end))
	}
	t := New("8f3c", r)
	t.AddGuest(GuestPart{
		First: clock(1275, 1065, 3), Now: clock(3_700_000, 3_699_790, 0.4), Agent: at(900), Serving: at(1040), Forgotten: 2,
		Spans: []spans.Span{
			{Name: "modules", Start: at(920), End: at(1000)},
			{Container: "web", Name: "create", Start: at(1105), End: at(1275)},
			{Container: "web", Name: "init stage", Start: at(1110), End: at(1270)},
			{Container: "web", Name: "start", Start: at(1305), End: at(1345)},
			{Container: "invented", Name: "start", Start: at(1305), End: at(1345)},
		},
	}, zero)
	return t
}

func TestDrawings(t *testing.T) {
	missing := pod()
	missing.GuestError, missing.Forgotten = "the guest\nis gone\x1b[2J", 0
	for name, draw := range map[string]func(io.Writer) error{
		"text.txt":    func(w io.Writer) error { return pod().WriteText(w, TextOptions{Width: 100}) },
		"blocks.txt":  func(w io.Writer) error { return pod().WriteText(w, TextOptions{Width: 10, Blocks: true}) },
		"missing.txt": func(w io.Writer) error { return missing.WriteText(w, TextOptions{}) },
		"trace.json":  func(w io.Writer) error { return pod().WriteTrace(w) },
		"pod.svg":     func(w io.Writer) error { return pod().WriteSVG(w) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := draw(&got); err != nil {
				t.Fatal(err)
			}
			golden(t, name, got.Bytes())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); go test -update writes it anew:\n%s", file, diff)
	}
}

// Whatever the names are, the SVG is valid XML.
func TestSVGIsXML(t *testing.T) {
	var out bytes.Buffer
	if err := pod().WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(&out); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestEmptyTimeline(t *testing.T) {
	empty := New("none", spans.New(zero))
	for _, draw := range []func(io.Writer) error{
		func(w io.Writer) error { return empty.WriteText(w, TextOptions{}) }, empty.WriteTrace, empty.WriteSVG,
	} {
		if err := draw(io.Discard); err != nil {
			t.Error(err)
		}
	}
}

func TestClocks(t *testing.T) {
	for _, test := range []struct {
		name       string
		first, now Clock
		guest      float64
		want       float64
		slack      float64
	}{
		{"the same rate", clock(1000, 500, 2), clock(11000, 10500, 1), 1500, 2000, 2},
		{"a slow guest", clock(1000, 500, 2), clock(11050, 10500, 1), 5500, 6025, 2},
		{"a very slow guest", clock(1000, 500, 2), clock(11500, 10500, 1), 5500, 6250, 2},
		{"a liar's rate", clock(1000, 500, 2), clock(11000, 500_000, 1), 500_100, 11_001, 1},
		{"before the first", clock(1000, 500, 2), clock(11000, 10500, 1), 0, 500, 2},
		{"too close together: the better one", clock(1000, 500, 2), clock(1013, 510, 1), 0, 503, 1},
		{"too close together: the first", clock(1000, 500, 1), clock(1013, 510, 2), 0, 500, 1},
		{"a guest that goes back", clock(1000, 500, 1), clock(2000, 400, 2), 600, 1100, 1},
		{"before the machine ran", clock(1000, 999, 1), clock(11000, 10999, 1), 0, 100, 1},
		{"after now", clock(1000, 500, 2), clock(11000, 10500, 1), 1e9, 11001, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := spans.New(zero)
			r.Add("", resumeStep, atTime(100), atTime(101))
			line := New("s", r)
			line.AddGuest(GuestPart{First: test.first, Now: test.now, Spans: []spans.Span{{Name: "x", Start: at(test.guest), End: at(test.guest)}}}, zero)
			got, _ := line.Find(Guest, "", "x")
			if off := got.Start - at(test.want); off.Abs() > time.Microsecond || line.Slack != at(test.slack) {
				t.Errorf("at %v ± %v, want %v ms ± %v ms", got.Start, line.Slack, test.want, test.slack)
			}
		})
	}
}

func TestParseIsTheInverse(t *testing.T) {
	data, err := json.Marshal(pod())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pod(), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, bad := range []string{
		`{`, `{"version": 2}`, `{"version": 1, "spans": [{"side": "host", "name": "x", "start_ns": 2, "end_ns": 1}]}`,
		`{"version": 1, "spans": [{"side": "moon", "name": "x"}]}`, `{"version": 1, "spans": [{"side": "host", "start_ns": -1}]}`,
	} {
		if got, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s: %+v, want an error", bad, got)
		}
	}
}

// FuzzGuestPart: whatever a guest's clock and spans are, the timeline can be
// drawn, and the guest's spans lie between the machine's first moment and now.
func FuzzGuestPart(f *testing.F) {
	f.Add(int64(500), int64(10500), int64(900), int64(1000), int64(700), int64(20))
	f.Add(int64(0), int64(1)<<60, int64(1)<<62, int64(-1), int64(1)<<61, int64(0))
	f.Fuzz(func(t *testing.T, first, now, agent, serving, start, took int64) {
		r := spans.New(zero)
		r.Add("", resumeStep, atTime(100), atTime(101))
		r.Add("c", "create", atTime(2000), atTime(2001))
		line := New("s", r)
		d := func(n int64) time.Duration { return max(0, time.Duration(n)) }
		line.AddGuest(GuestPart{
			First: Clock{Host: atTime(1000), Guest: d(first)}, Now: Clock{Host: atTime(9000), Guest: d(now)},
			Agent: d(agent), Serving: d(serving),
			Spans: []spans.Span{{Container: "c", Name: "x", Start: d(start), End: max(d(start), d(start)+d(took)%at(1e6))}},
		}, zero)
		for _, s := range line.Spans {
			if s.Side == Guest && (s.Start < at(100) || s.End < s.Start || s.End > at(9000)) {
				t.Errorf("span %+v", s)
			}
		}
		for _, draw := range []func(io.Writer) error{
			func(w io.Writer) error { return line.WriteText(w, TextOptions{}) }, line.WriteTrace, line.WriteSVG,
		} {
			if err := draw(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}
