package containerd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// The timeline of a pod with two containers has every part of their starts, in
// order, and agrees with the shim's log line about the boot.
func TestTimeline(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		mark := d.LogSize()
		pod := newPod(ctx, t, d)
		idle(ctx, t, pod)
		loud := add(ctx, t, pod, harness.ContainerConfig{Args: script("echo loud; sleep 100000")})
		if err := loud.Out.Await(ctx, "loud"); err != nil {
			t.Fatal(err)
		}
		id := pod.Sandbox.Box.ID()
		line := askTimeline(ctx, t, d, id)
		checkTimelineOrder(t, line, loud.Box.ID())
		checkTimelineSums(t, line, bootLine(t, d.LogSince(mark, 100000)))
		if out, err := kataRuntime(ctx, d, "timeline", id).CombinedOutput(); err != nil || strings.Count(string(out), "first output") != 1 {
			t.Errorf("drawing: %v\n%s", err, out)
		} else {
			t.Logf("\n%s", out)
		}
	})
}

func kataRuntime(ctx context.Context, d *harness.Daemon, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(d.Layout().Bin(), "kata-runtime"), args...)
}

func askTimeline(ctx context.Context, t *testing.T, d *harness.Daemon, id string) *timeline.Timeline {
	t.Helper()
	out, err := kataRuntime(ctx, d, "timeline", "--json", id).Output()
	if err != nil {
		t.Fatalf("kata-runtime timeline: %v", err)
	}
	line, err := timeline.Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	if line.GuestError != "" || line.Forgotten != 0 {
		t.Errorf("guest's part: %q, %d forgotten", line.GuestError, line.Forgotten)
	}
	return line
}

// checkTimelineOrder looks for the parts of the boot, and of a container's start.
func checkTimelineOrder(t *testing.T, line *timeline.Timeline, container string) {
	t.Helper()
	var last timeline.Span
	for _, want := range []timeline.Span{
		{Side: timeline.Host, Name: "shim"}, {Side: timeline.Host, Name: "request"}, {Side: timeline.Host, Name: "qemu"},
		{Side: timeline.Host, Name: "resume"}, {Side: timeline.Guest, Name: "kernel"}, {Side: timeline.Guest, Name: "agent"},
		{Side: timeline.Guest, Name: "modules"},
		{Side: timeline.Host, Name: "create call", Container: container}, {Side: timeline.Host, Name: "create", Container: container},
		{Side: timeline.Guest, Name: "create", Container: container}, {Side: timeline.Guest, Name: "init stage", Container: container},
		{Side: timeline.Host, Name: "start call", Container: container}, {Side: timeline.Guest, Name: "exec", Container: container},
		{Side: timeline.Host, Name: "first output", Container: container},
	} {
		got, ok := line.Find(want.Side, want.Container, want.Name)
		if !ok && want.Name == "qemu" && os.Getenv(harness.EnvPool) != "" {
			continue // the spare's QEMU was started before the pod
		}
		if !ok {
			t.Errorf("the timeline has no %s span %q", want.Side, want.Name)
			continue
		}
		// Between host and guest the order is only as exact as the clocks'
		// comparison.
		if got.Start+2*line.Slack < last.Start {
			t.Errorf("%s %s starts at %v, before %s %s at %v (guest ± %v)", got.Side, got.Name, got.Start, last.Side, last.Name, last.Start, line.Slack)
		}
		last = got
	}
}

// stepTime is one step in the log line of a boot.
var stepTime = regexp.MustCompile(`\bt_([a-z-]+)=([0-9.]+)`)

// bootLine is the steps' times in the log of one pod's boot.
func bootLine(t *testing.T, log string) map[string]time.Duration {
	t.Helper()
	times := map[string]time.Duration{}
	for text := range strings.Lines(log) {
		if !strings.Contains(text, `msg="sandbox booted"`) {
			continue
		}
		for _, m := range stepTime.FindAllStringSubmatch(text, -1) {
			ms, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			times[m[1]] = time.Duration(ms * float64(time.Millisecond))
		}
	}
	if len(times) == 0 {
		t.Fatalf("no line of a boot in the log:\n%s", log)
	}
	return times
}

// checkTimelineSums compares each step with the log, which rounds to 0.1 ms, and
// their sum with the whole boot.
func checkTimelineSums(t *testing.T, line *timeline.Timeline, logged map[string]time.Duration) {
	t.Helper()
	total := logged["total"]
	delete(logged, "total")
	var sum time.Duration
	for name, want := range logged {
		got, ok := line.Find(timeline.Host, "", name)
		if took := got.End - got.Start; !ok || (took-want).Abs() > 100*time.Microsecond {
			t.Errorf("step %s: took %v, the log says %v", name, took, want)
		}
		sum += got.End - got.Start
	}
	boot, _ := line.Find(timeline.Host, "", "boot")
	if (sum-total).Abs() > time.Millisecond || sum > boot.End-boot.Start {
		t.Errorf("the steps took %v, the log says %v, and the boot %v", sum, total, boot.End-boot.Start)
	}
}
