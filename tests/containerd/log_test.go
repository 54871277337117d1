package containerd

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// isOf reports whether a log line's sandbox is the pod, or the spare that it has
// claimed.
func isOf(sandbox, pod string) bool {
	return sandbox == pod || os.Getenv(harness.EnvPool) != "" && strings.HasPrefix(sandbox, "spare-")
}

// The shim serves a running pod's log: the shim's lines and the agent's, and
// new ones until the pod ends. What a spare logged before it was claimed has its
// name.
func TestPodLog(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		id := pod.Sandbox.Box.ID()
		out, err := kataRuntime(ctx, d, "log", id).Output()
		if text := string(out); err != nil || !strings.Contains(text, " shim    container created ") || !strings.Contains(text, " agent   sandbox set up ") {
			t.Errorf("log: %v\n%s", err, out)
		}
		if out, err := kataRuntime(ctx, d, "log", "--console", id).Output(); err != nil || strings.ContainsFunc(string(out), isControl) {
			t.Errorf("console: %v\n%q", err, out)
		}
		follow := kataRuntime(ctx, d, "log", "--follow", "--json", id)
		pipe, err := follow.StdoutPipe()
		if err == nil {
			err = follow.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		added, seen := "", uint64(0)
		for in := bufio.NewScanner(pipe); in.Scan(); {
			var line struct {
				Seq                     uint64
				Msg, Container, Sandbox string
			}
			if err := json.Unmarshal(in.Bytes(), &line); err != nil || line.Seq <= seen || !isOf(line.Sandbox, id) {
				t.Errorf("after line %d: %v: %s", seen, err, in.Bytes())
			}
			seen = line.Seq
			switch {
			case line.Msg == "container created" && added == "": // the pod's own
				added = idle(ctx, t, pod).Box.ID()
			case line.Msg == "container created" && line.Container == added:
				added = "seen"
				removed(t, "pod", pod.Remove) // ends the log
			}
		}
		if err := follow.Wait(); err != nil || added != "seen" {
			t.Errorf("follow: %v, the new container is %q", err, added)
		}
	})
}

func isControl(r rune) bool { return r < ' ' && r != '\n' && r != '\t' }
