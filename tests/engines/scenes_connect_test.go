package engines

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// Networks that a running container joins and leaves.
func connectScenes() []scene {
	return []scene{{name: "connect", needs: Connect, play: playConnect}}
}

func playConnect(ctx context.Context, s *stage) {
	first, second := s.twoNetworks(ctx)
	name := s.container("main")
	if !s.start(ctx, name, webServer, "--network", first, "--ip", "10.99.8.20") {
		return
	}
	s.expect("ready", s.logged(ctx, name, "ready"), "true")
	const atFirst, both = "10.99.8.20/24\n", "10.99.8.20/24\n10.99.9.20/24\n"
	s.expect("at first", s.addressed(ctx, name, atFirst), atFirst)
	s.expect("connect", s.run(ctx, "network", "connect", "--ip", "10.99.9.20", second, name).code, "0")
	s.expect("connected", s.addressed(ctx, name, both), both)
	get := "wget -q -O - http://10.99.9.20"
	s.expect("get", s.script(ctx, get, "--network", second), `exit 0 "served\n"`)
	reach := "nc -w 3 10.99.9.20 80 </dev/null || exit 9"
	s.expect("reach", s.script(ctx, reach, "--network", second).code, "0")
	s.expect("get by name", s.script(ctx, "/ask http://"+name, "--network", second, "-v", bed.ask+":/ask:ro"), `exit 0 "served\n"`)
	s.note("routes", s.routes(ctx, name))
	s.expect("disconnect", s.run(ctx, "network", "disconnect", second, name).code, "0")
	s.expect("disconnected", s.addressed(ctx, name, atFirst), atFirst)
	s.expect("out of reach", s.script(ctx, reach, "--network", second).code, "9")
	s.expect("connect again", s.run(ctx, "network", "connect", "--ip", "10.99.9.20", second, name).code, "0")
	s.expect("connected again", s.addressed(ctx, name, both), both)
	s.expect("disconnect the first", s.run(ctx, "network", "disconnect", first, name).code, "0")
	const left = "10.99.9.20/24\n"
	s.expect("without the first", s.addressed(ctx, name, left), left)
	s.note("routes without the first", s.routes(ctx, name))
	s.expect("get from the rest", s.script(ctx, get, "--network", second), `exit 0 "served\n"`)
}

func (s *stage) twoNetworks(ctx context.Context) (first, second string) {
	s.t.Helper()
	first, second = s.thing("network", "first"), s.thing("network", "second")
	s.expect("create", s.run(ctx, "network", "create", "--subnet", "10.99.8.0/24", first).code, "0")
	s.expect("create another", s.run(ctx, "network", "create", "--subnet", "10.99.9.0/24", second).code, "0")
	return first, second
}

// addressed waits until a container has these IPv4 addresses, one to a line, and
// returns those that it has: a guest follows its pod a moment later.
func (s *stage) addressed(ctx context.Context, name, want string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.eventually(ctx, want, func() string {
		return s.run(ctx, "exec", name, "sh", "-c", `ip -4 -o addr | awk '$2 != "lo" {print $4}' | sort`).stdout
	})
}

func (s *stage) routes(ctx context.Context, name string) string {
	s.t.Helper()
	return s.run(ctx, "exec", name, "sh", "-c", `ip route | awk '{$1=$1; print}' | sort`).stdout
}

// A container that hibernates is woken by a change of its networks, and follows it.
func TestConnectAsleep(t *testing.T) {
	if !bed.runtime.VM {
		t.Skip("runc's containers do not hibernate")
	}
	ctx := t.Context()
	s := &stage{t: t, engine: started(t, startDocker28), runtime: harness.Kata, scene: "asleep", rows: sheet{}}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		s.clear(ctx)
		if err := host.PodsGone(ctx); err != nil {
			t.Error(err)
		}
	})
	first, second := s.twoNetworks(ctx)
	name := s.container("main")
	s.must(ctx, "run", "-d", "--name", name, "--network", first, "--ip", "10.99.8.20", image.Busybox, "sh", "-c", webServer)
	for range 2 {
		s.hibernate(ctx, name)
		s.must(ctx, "network", "connect", "--ip", "10.99.9.20", second, name)
		s.awake(ctx)
		const both = "10.99.8.20/24\n10.99.9.20/24\n"
		if got := s.addressed(ctx, name, both); got != both {
			t.Errorf("connected: %q, want %q", got, both)
		}
		s.hibernate(ctx, name)
		s.must(ctx, "network", "disconnect", second, name)
		s.awake(ctx)
		const one = "10.99.8.20/24\n"
		if got := s.addressed(ctx, name, one); got != one {
			t.Errorf("disconnected: %q, want %q", got, one)
		}
	}
}

// hibernate has a container hibernate, once the engine has ended what it asks of it.
func (s *stage) hibernate(ctx context.Context, name string) {
	s.t.Helper()
	id := s.inspect(ctx, name, "{{.Id}}")
	var out []byte
	code := s.eventually(ctx, "0", func() string {
		cmd := exec.CommandContext(ctx, filepath.Join(bed.layout.Bin(), "kata-runtime"), "hibernate", id)
		var err error
		out, err = cmd.CombinedOutput()
		return strconv.Itoa(exitCode(err))
	})
	if code != "0" {
		s.t.Fatalf("hibernate: exit %s: %s", code, out)
	}
	if state := s.state(ctx); state != "hibernating" {
		s.t.Fatalf("it is %s, want hibernating", state)
	}
}

// awake waits until the host's only pod runs, without a call to it.
func (s *stage) awake(ctx context.Context) {
	s.t.Helper()
	if state := s.eventually(ctx, "running", func() string { return s.state(ctx) }); state != "running" {
		s.t.Fatalf("it is %s, want running", state)
	}
}

// state is that of the host's only pod.
func (s *stage) state(ctx context.Context) string {
	s.t.Helper()
	out, err := exec.CommandContext(ctx, filepath.Join(bed.layout.Bin(), "kata-runtime"), "pods", "--json").Output()
	var pods []struct {
		Hibernation *struct{} `json:"hibernation"`
	}
	if err == nil {
		err = json.Unmarshal(out, &pods)
	}
	if err != nil || len(pods) != 1 {
		s.t.Fatalf("pods: %v: %s", err, out)
	}
	if pods[0].Hibernation != nil {
		return "hibernating"
	}
	return "running"
}
