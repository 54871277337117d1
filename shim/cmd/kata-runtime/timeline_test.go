package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/virtcontainers/timeline"
)

// withPod is a host with one pod, "p1".
func withPod() host {
	return host{timeline: func(_ context.Context, id string) (*timeline.Timeline, error) {
		if id != "p1" {
			return nil, errors.New("find sandbox " + id + ": no pod of that id runs")
		}
		return &timeline.Timeline{Version: timeline.Version, Sandbox: id, Spans: []timeline.Span{
			{Side: timeline.Host, Name: "boot", End: time.Second},
		}}, nil
	}}
}

func TestTimelineCommand(t *testing.T) {
	dir := t.TempDir()
	trace, svg := filepath.Join(dir, "t.json"), filepath.Join(dir, "t.svg")
	out, errs, code := call(t, withPod(), "timeline", "--trace", trace, "--svg", svg, "p1")
	if code != 0 || errs != "" || !strings.Contains(out, "sandbox p1") || !strings.Contains(out, "1000.0 ##") {
		t.Errorf("%d, %q, %s", code, errs, out)
	}
	for file, want := range map[string]string{trace: `"traceEvents"`, svg: "<svg "} {
		if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, %.40s, want %s in it", file, err, data, want)
		}
	}
	out, _, _ = call(t, withPod(), "timeline", "--json", "p1")
	if line, err := timeline.Parse([]byte(out)); err != nil || line.Sandbox != "p1" || !json.Valid([]byte(out)) {
		t.Errorf("%v, %s", err, out)
	}
}

func TestTimelineCommandRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "want one pod's id"},
		{[]string{"p1", "p2"}, "want one pod's id"},
		{[]string{"p3"}, "no pod of that id runs"},
		{[]string{"--svg", "/proc/none/x", "p1"}, "/proc/none/x"},
	} {
		out, errs, code := call(t, withPod(), append([]string{"timeline"}, test.args...)...)
		if code != 1 || out != "" || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %d, %q, %q, want %q", test.args, code, out, errs, test.want)
		}
	}
}
