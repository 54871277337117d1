package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/tests/harness"
)

// stage is the environment of scenes: a pod, connections to its shim and to
// containerd, and a record of the events.
type stage struct {
	t     *testing.T
	d     *harness.Daemon
	sheet *sheet
	scene string
	pod   *harness.Pod
	rec   *harness.Recorder
	shim  *ttrpc.Client
	// service is the version of the task API that this containerd's shims
	// serve: ours serves both, runc's only one.
	service string
	engine  tasks.TasksClient
	execs   int
	added   []*harness.Process
	// stopped reports whether the other runtime's scenes have ended this one's.
	stopped func() bool
	// alive is set if the probed process has not ended.
	alive bool
}

func newStage(ctx context.Context, t *testing.T, d *harness.Daemon, all *sheet) *stage {
	t.Helper()
	s := &stage{t: t, d: d, sheet: all, engine: d.Client.TaskService(), service: "containerd.task.v3.Task", stopped: func() bool { return stopped(ctx) }}
	if d.Release().Name == "1.6" {
		s.service = "containerd.task.v2.Task"
	}
	s.rec = d.Record(ctx)
	s.pod = newPod(ctx, t, d)
	address, err := shimAddress(d.BundleDir(s.pod.Sandbox.Box.ID()))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", strings.TrimPrefix(address, "unix://"))
	if err != nil {
		t.Fatalf("dial the shim: %v", err)
	}
	s.shim = ttrpc.NewClient(conn)
	return s
}

func (s *stage) close() {
	_ = s.shim.Close()
	s.rec.Close()
}

// shimAddress reads the shim's address, which containerd stores in the bundle,
// since 2.0 in bootstrap.json.
func shimAddress(bundle string) (string, error) {
	if data, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json")); err == nil {
		var params struct{ Address string }
		if err := json.Unmarshal(data, &params); err != nil {
			return "", fmt.Errorf("read the shim's address: %w", err)
		}
		return params.Address, nil
	}
	data, err := os.ReadFile(filepath.Join(bundle, "address"))
	if err != nil {
		return "", fmt.Errorf("read the shim's address: %w", err)
	}
	return string(data), nil
}

// note adds a row of the scene.
func (s *stage) note(row, format string, args ...any) {
	s.t.Helper()
	if err := s.sheet.note(s.scene+": "+row, fmt.Sprintf(format, args...)); err != nil {
		s.t.Fatal(err)
	}
}

// must aborts the scene on an error of an operation that every runtime
// supports. If the scene was stopped, that failed with it and is not the reason.
func (s *stage) must(err error, what string) {
	s.t.Helper()
	if err != nil && s.stopped() {
		s.t.FailNow()
	}
	if err != nil {
		s.t.Fatalf("%s: %s: %v", s.scene, what, err)
	}
}

// create makes a container of the pod; it is not started.
func (s *stage) create(ctx context.Context, cfg harness.ContainerConfig) *harness.Container {
	s.t.Helper()
	if cfg.Name == "" {
		cfg.Name = "cast"
	}
	c, err := s.pod.Add(ctx, cfg)
	s.must(err, "create container")
	return c
}

// run makes a container and starts it.
func (s *stage) run(ctx context.Context, cfg harness.ContainerConfig) *harness.Container {
	s.t.Helper()
	c := s.create(ctx, cfg)
	s.must(c.Start(ctx), "start container")
	return c
}

// sleeper starts a container that only sleeps and that only SIGKILL ends.
func (s *stage) sleeper(ctx context.Context) *harness.Container {
	s.t.Helper()
	return s.run(ctx, harness.ContainerConfig{Args: []string{"sleep", "100000"}})
}

// exec starts a process in a container.
func (s *stage) exec(ctx context.Context, c *harness.Container, cfg harness.ExecConfig) *harness.Process {
	s.t.Helper()
	p := s.addExec(ctx, c, cfg)
	s.must(p.Start(ctx), "start exec")
	return p
}

// addExec adds a process that is not started.
func (s *stage) addExec(ctx context.Context, c *harness.Container, cfg harness.ExecConfig) *harness.Process {
	s.t.Helper()
	p, err := c.Exec(ctx, cfg)
	s.must(err, "add exec")
	s.added = append(s.added, p)
	return p
}

// says waits for a word in a process's output.
func (s *stage) says(ctx context.Context, p *harness.Process, word string) {
	s.t.Helper()
	s.must(p.Out.Await(ctx, word), "wait for output")
}

// end kills a process and waits for it.
func (s *stage) end(ctx context.Context, p *harness.Process) uint32 {
	s.t.Helper()
	code, err := p.KillAndWait(ctx)
	s.must(err, "kill")
	return code
}

// code waits for the end of a process, with a timeout.
func (s *stage) code(ctx context.Context, p *harness.Process) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		return "no exit"
	}
	return fmt.Sprint(code)
}

// silent reports whether a process does not print a word for a while.
func (s *stage) silent(ctx context.Context, p *harness.Process, word string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return p.Out.Await(ctx, word) != nil
}

// soon is like code for a process that may run on: it is killed if it has not
// ended after a while.
func (s *stage) soon(ctx context.Context, p *harness.Process) string {
	s.t.Helper()
	first, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	if code, err := p.Wait(first); err == nil {
		return fmt.Sprintf("exit %d %q", code, p.Out)
	}
	return fmt.Sprintf("runs on, killed %d", s.end(ctx, p))
}

// strike removes what the scene left.
func (s *stage) strike(ctx context.Context) {
	s.t.Helper()
	for _, p := range s.added {
		if err := p.Remove(ctx); err != nil {
			s.t.Logf("%s: %v", s.scene, err) // its container goes next
		}
	}
	s.added = nil
	for _, c := range s.pod.Services {
		s.must(c.Remove(ctx), "remove container")
	}
	s.pod.Services = nil
}

// events returns a container's events up to the first of the given words, or
// all that arrive within a while.
func (s *stage) events(ctx context.Context, c *harness.Container, until string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	id := c.Box.ID()
	var text string
	for {
		text = strings.ReplaceAll(strings.Join(words(s.rec.Of(id)), ", "), id, "init")
		if strings.Contains(text, until) {
			break
		}
		select {
		case <-ctx.Done():
			return text + ", no " + until
		case <-time.After(5 * time.Millisecond):
		}
	}
	if !s.d.Runtime().VM {
		text = mended.ReplaceAllString(text, "$2, $1")
	}
	return text
}

// mended matches what is corrected in runc's events: its shim wakes waiters
// before it sends the exit, so that a following Delete can overtake it.
var mended = regexp.MustCompile(`(delete), (exit\(init\)=\d+)`)
