package service

import (
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// calls are the host's calls for a container "c" and its exec "e".
var calls = map[string]func(t *testing.T, p *Pod) error{
	"start":  func(t *testing.T, p *Pod) error { _, err := p.start(t.Context(), "c", ""); return err },
	"pause":  func(t *testing.T, p *Pod) error { return p.pause(t.Context(), "c") },
	"resume": func(t *testing.T, p *Pod) error { return p.resume(t.Context(), "c") },
	"exec":   func(t *testing.T, p *Pod) error { return p.addExec(execRequest(t, "c", "new")) },
	"kill": func(_ *testing.T, p *Pod) error {
		return p.kill(&taskapi.KillRequest{ID: "c", Signal: uint32(unix.SIGTERM)})
	},
	"start exec": func(t *testing.T, p *Pod) error { _, err := p.start(t.Context(), "c", "e"); return err },
	"kill exec": func(_ *testing.T, p *Pod) error {
		return p.kill(&taskapi.KillRequest{ID: "c", ExecID: "e", Signal: uint32(unix.SIGTERM)})
	},
	"delete": func(t *testing.T, p *Pod) error { _, err := p.delete(t.Context(), "c", ""); return err },
}

func TestWhatStatesAllow(t *testing.T) {
	ok := func(err error) bool { return err == nil }
	refused, gone := errdefs.IsFailedPrecondition, errdefs.IsNotFound
	tests := []struct {
		name  string
		reach func(t *testing.T, p *Pod, r *fakeRuntime)
		want  map[string]func(error) bool
	}{
		{"nothing", func(*testing.T, *Pod, *fakeRuntime) {}, map[string]func(error) bool{
			"start": gone, "pause": gone, "resume": gone, "exec": gone, "kill": gone,
			"start exec": gone, "kill exec": gone, "delete": gone,
		}},
		{"created", func(t *testing.T, p *Pod, _ *fakeRuntime) { create(t, p, "c"); addExec(t, p) }, map[string]func(error) bool{
			"start": ok, "pause": refused, "resume": refused, "exec": ok, "kill": ok,
			"start exec": ok, "kill exec": refused, "delete": ok,
		}},
		{"running", func(t *testing.T, p *Pod, _ *fakeRuntime) { startContainer(t, p, "c"); addExec(t, p) }, map[string]func(error) bool{
			"start": refused, "pause": ok, "resume": refused, "exec": ok, "kill": ok,
			"start exec": ok, "kill exec": refused, "delete": refused,
		}},
		{"paused", func(t *testing.T, p *Pod, _ *fakeRuntime) {
			startContainer(t, p, "c")
			addExec(t, p)
			if err := p.pause(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
		}, map[string]func(error) bool{
			"start": refused, "pause": refused, "resume": ok, "exec": refused, "kill": ok,
			"start exec": refused, "kill exec": refused, "delete": refused,
		}},
		{"stopped", func(t *testing.T, p *Pod, r *fakeRuntime) {
			startContainer(t, p, "c")
			startExec(t, p, "c", "e")
			r.last.init.exit(0)
			wait(t, p, "c", "")
		}, map[string]func(error) bool{
			"start": refused, "pause": refused, "resume": refused, "exec": refused, "kill": gone,
			"start exec": refused, "kill exec": gone, "delete": ok,
		}},
	}
	for _, test := range tests {
		for name, is := range test.want {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				pod, runtime := testPod(t)
				test.reach(t, pod, runtime)
				if err := calls[name](t, pod); !is(err) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

func addExec(t *testing.T, p *Pod) {
	t.Helper()
	if err := p.addExec(execRequest(t, "c", "e")); err != nil {
		t.Fatal(err)
	}
}

func TestWhomAKillReaches(t *testing.T) {
	tests := []struct {
		name    string
		req     *taskapi.KillRequest
		toAll   string // the call that reaches the whole container
		toInit  int
		toExecs int
	}{
		{"TERM", &taskapi.KillRequest{Signal: 15}, "", 1, 0},
		{"TERM to all", &taskapi.KillRequest{Signal: 15, All: true}, "signal 15", 1, 0},
		{"KILL", &taskapi.KillRequest{Signal: 9}, "signal 9", 1, 0},
		{"TERM to the exec", &taskapi.KillRequest{ExecID: "e", Signal: 15}, "", 0, 1},
		{"KILL to the exec", &taskapi.KillRequest{ExecID: "e", Signal: 9, All: true}, "", 0, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod, runtime := testPod(t)
			startContainer(t, pod, "c")
			startExec(t, pod, "c", "e")
			test.req.ID = "c"
			if err := pod.kill(test.req); err != nil {
				t.Fatal(err)
			}
			c := runtime.last
			if n := len(c.init.signals); n != test.toInit {
				t.Errorf("init got %d signals, want %d", n, test.toInit)
			}
			if n := len(c.execs[0].signals); n != test.toExecs {
				t.Errorf("exec got %d signals, want %d", n, test.toExecs)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			reached := ""
			for _, call := range c.calls {
				if call != "start" && call != "exec" && call != "kill" {
					reached = call
				}
			}
			if reached != test.toAll {
				t.Errorf("container got %q, want %q", reached, test.toAll)
			}
		})
	}
}

func TestUnboundStreams(t *testing.T) {
	pod, _ := testPod(t)
	req := createRequest(t, "c")
	req.Stdout = "yes"
	if _, err := pod.create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.start(t.Context(), "c", ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("started without its stdout: %v", err)
	}
}
