package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/cri/images"
)

// walkTimeout bounds one walk through crictl's commands.
const walkTimeout = 5 * time.Minute

// pod is a pod made by crictl, and the directory with its configuration files
// and logs.
type pod struct {
	e       *env.Env
	id, dir string
	config  string
	made    int
}

// podConfig is a sandbox-config.json as in engines' documentation.
const podConfig = `{
	"metadata": {"name": %q, "namespace": "default", "uid": %q, "attempt": 1},
	"log_directory": %q,
	"linux": {%s}
}`

// runp runs a pod.
func runp(ctx context.Context, t *testing.T, e *env.Env, name string) *pod {
	t.Helper()
	return runpWith(ctx, t, e, name, bed.runtime.Name, "")
}

// runpWith runs a pod with a runtime handler, and with more in the "linux" part of
// its configuration.
func runpWith(ctx context.Context, t *testing.T, e *env.Env, name, handler, linux string) *pod {
	t.Helper()
	p := &pod{e: e, dir: t.TempDir()}
	p.config = filepath.Join(p.dir, "sandbox-config.json")
	text := fmt.Sprintf(podConfig, name, e.Daemon.NewID(name), filepath.Join(p.dir, "logs"), linux)
	if err := os.WriteFile(p.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p.id = p.do(ctx, t, "runp", "--runtime", handler, p.config)
	return p
}

// do runs crictl and returns what it printed; its failure ends the test.
func (p *pod) do(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.e.Crictl(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// create makes a container of a command of busybox, with more of its
// configuration if wanted.
func (p *pod) create(ctx context.Context, t *testing.T, command []string, more map[string]any) string {
	t.Helper()
	p.made++
	name := fmt.Sprintf("c%d", p.made)
	config := map[string]any{
		"metadata": map[string]any{"name": name}, "image": map[string]any{"image": images.Busybox},
		"log_path": name + ".log", "linux": map[string]any{},
	}
	if command != nil {
		config["command"] = command
	}
	for key, value := range more {
		config[key] = value
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.dir, name+".json")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return p.do(ctx, t, "create", "--with-pull", p.id, path, p.config)
}

// start makes a container and starts it.
func (p *pod) start(ctx context.Context, t *testing.T, command []string, more map[string]any) string {
	t.Helper()
	id := p.create(ctx, t, command, more)
	p.do(ctx, t, "start", id)
	return id
}

// awaitState waits until a container is in a state, and returns its exit code.
func (p *pod) awaitState(ctx context.Context, t *testing.T, id, state string) int {
	t.Helper()
	for {
		var answer struct {
			Status struct {
				State    string
				ExitCode int
			}
		}
		if err := json.Unmarshal([]byte(p.do(ctx, t, "inspect", id)), &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Status.State == state {
			return answer.Status.ExitCode
		}
		select {
		case <-ctx.Done():
			t.Fatalf("container %s is %s, want %s: %v", id, answer.Status.State, state, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// The commands of a user's first hour.
func TestCrictl(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runp(ctx, t, e, "walk")
		if got := p.do(ctx, t, "pods", "--quiet", "--state", "ready"); got != p.id {
			t.Errorf("pods: got %q, want %q", got, p.id)
		}
		script := "echo out; echo err >&2; trap 'echo bye; exit 5' TERM; while :; do sleep 0.1; done"
		id := p.create(ctx, t, []string{"sh", "-c", script}, nil)
		if got := p.do(ctx, t, "ps", "--quiet", "--state", "created"); got != id {
			t.Errorf("ps after create: got %q, want %q", got, id)
		}
		p.do(ctx, t, "start", id)
		p.awaitState(ctx, t, id, "CONTAINER_RUNNING")
		checkExec(ctx, t, p, id)
		checkStats(ctx, t, p, id)
		p.do(ctx, t, "stop", "--timeout", "30", id)
		if code := p.awaitState(ctx, t, id, "CONTAINER_EXITED"); code != 5 {
			t.Errorf("exit code %d after stop, want 5", code)
		}
		checkLogs(ctx, t, p, id)
		p.do(ctx, t, "rm", id)
		if got := p.do(ctx, t, "ps", "--all", "--quiet"); got != "" {
			t.Errorf("ps after rm: %q", got)
		}
		p.do(ctx, t, "stopp", p.id)
		if got := p.do(ctx, t, "pods", "--quiet", "--state", "notready"); got != p.id {
			t.Errorf("pods after stopp: got %q, want %q", got, p.id)
		}
		p.do(ctx, t, "rmp", p.id)
		if got := p.do(ctx, t, "pods", "--quiet"); got != "" {
			t.Errorf("pods after rmp: %q", got)
		}
	})
}

func checkExec(ctx context.Context, t *testing.T, p *pod, id string) {
	t.Helper()
	for _, how := range []string{"--sync=true", "--sync=false"} {
		if got := p.do(ctx, t, "exec", how, id, "sh", "-c", "echo from exec"); got != "from exec" {
			t.Errorf("exec %s: got %q", how, got)
		}
		_, err := p.e.Crictl(ctx, "exec", how, id, "sh", "-c", "exit 9")
		if err == nil || !strings.Contains(err.Error(), "9") {
			t.Errorf("exec %s of a command that exits 9: %v", how, err)
		}
	}
}

// counters are the two CRI statistics that can never be zero for a running
// container.
type counters struct {
	CPU    struct{ UsageCoreNanoSeconds struct{ Value string } }
	Memory struct{ WorkingSetBytes struct{ Value string } }
}

func (c counters) positive() bool {
	return positive(c.CPU.UsageCoreNanoSeconds.Value) && positive(c.Memory.WorkingSetBytes.Value)
}

// checkStats checks the container's counters.
func checkStats(ctx context.Context, t *testing.T, p *pod, id string) {
	t.Helper()
	var container struct{ Stats []counters }
	if err := json.Unmarshal([]byte(p.do(ctx, t, "stats", "--output", "json", "--id", id)), &container); err != nil {
		t.Fatal(err)
	}
	if len(container.Stats) != 1 || !container.Stats[0].positive() {
		t.Errorf("stats: %+v", container.Stats)
	}
}

func positive(number string) bool { return number != "" && number != "0" && number[0] != '-' }

func checkLogs(ctx context.Context, t *testing.T, p *pod, id string) {
	t.Helper()
	out, err := p.e.CrictlCmd(ctx, "logs", id).Output()
	if err != nil || string(out) != "out\nbye\n" {
		t.Errorf("logs on stdout: %q, %v", out, err)
	}
	both, err := p.e.CrictlCmd(ctx, "logs", id).CombinedOutput()
	if err != nil || !strings.Contains(string(both), "err\n") {
		t.Errorf("logs of both streams: %q, %v", both, err)
	}
}
