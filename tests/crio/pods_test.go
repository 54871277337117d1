package crio

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/cri/images"
	"github.com/katabox/katabox/tests/harness"
)

// known are the rows in which a runtime differs from runc, with its result.
var known = map[string]map[string]string{
	byShim: {
		"port-forward": "nothing", // CRI-O does not forward ports of a VM runtime (internal/oci, PortForwardContainer)
		// After a restart CRI-O does not wait for a VM runtime's containers
		// from before.
		"killed after the restart": "CONTAINER_RUNNING",
	},
	asOCI: {
		"out of memory": "137 Error", // conmon watches the host's cgroup, and the guest's kernel killed
	},
}

// The same scenes are played with each runtime.
func TestPods(t *testing.T) {
	ctx := t.Context()
	d := startDaemon(ctx, t)
	defer func() { stopDaemon(t, d) }()
	for _, image := range []string{images.Busybox, images.Web} {
		if r := crictl(ctx, "", "pull", image); r.code != 0 {
			t.Fatalf("pull %s: %+v", image, r)
		}
	}
	rows := map[string]map[string]string{}
	for _, handler := range []string{runc, byShim, asOCI} {
		s := &stage{T: t, handler: handler, dir: filepath.Join(workDir, handler), rows: map[string]string{}}
		d = s.play(ctx, d)
		rows[handler] = s.rows
	}
	for _, handler := range []string{byShim, asOCI} {
		for _, row := range slices.Sorted(maps.Keys(rows[runc])) {
			want, differs := known[handler][row]
			if !differs {
				want = rows[runc][row]
			}
			if got := rows[handler][row]; got != want {
				t.Errorf("%s: %s: %q, want %q; with runc %q", handler, row, got, want, rows[runc][row])
			}
		}
	}
}

// stage is one pod of one runtime, with the results.
type stage struct {
	*testing.T
	handler, dir string
	// pod is its id, and config the file with its configuration.
	pod, config string
	rows        map[string]string
}

// play runs a pod from creation to removal, with a restart of CRI-O, and
// returns the restarted CRI-O.
func (s *stage) play(ctx context.Context, d *harness.Child) *harness.Child {
	ctx, cancel := context.WithTimeout(ctx, sceneTimeout)
	defer cancel()
	s.refuse(ctx)
	s.runPod(ctx, "pod")
	reader := s.run(ctx, "reader", images.Busybox, []string{"sh", "-c", "echo hello; while read l; do echo got $l; done; sleep 1000"},
		map[string]any{"memory_limit_in_bytes": 64 << 20, "cpu_quota": 50000, "cpu_period": 100000})
	s.run(ctx, "web", images.Web, nil, nil)
	s.execs(ctx, reader)
	s.ends(ctx)
	s.forward(ctx)
	stopDaemon(s.T, d)
	d = startDaemon(ctx, s.T)
	s.note("exec after the restart", crictl(ctx, "", "exec", "-s", reader, "echo", "after"))
	s.kill(ctx, reader)
	s.rows["stop and remove"] = fmt.Sprint(crictl(ctx, "", "rmp", "-f", s.pod).code)
	s.rows["pods left"] = s.must(crictl(ctx, "", "pods", "-q"))
	return d
}

// runPod runs the pod.
func (s *stage) runPod(ctx context.Context, name string) {
	s.Helper()
	s.config = s.podFile(name, nil)
	s.pod = s.must(crictl(ctx, "", "runp", "-r", s.handler, s.config))
}

// refuse requests what only runc supports.
func (s *stage) refuse(ctx context.Context) {
	if s.handler == runc {
		return
	}
	for name, options := range map[string]map[string]any{"network": {"network": 2}, "pid": {"pid": 2}} {
		r := crictl(ctx, "", "runp", "-r", s.handler, s.podFile("host-"+name, options))
		if r.code == 0 || !strings.Contains(r.errors, "host") || !strings.Contains(r.errors, name) {
			s.Errorf("%s: a pod with the host's %s: %+v", s.handler, name, r)
		}
	}
}

// execs runs commands in a container, and types into it.
func (s *stage) execs(ctx context.Context, id string) {
	s.note("exec", crictl(ctx, "", "exec", id, "sh", "-c", "echo out; hostname; exit 7"))
	s.note("exec with input", crictl(ctx, "input\n", "exec", "-i", id, "cat"))
	typed := command(ctx, "", "script", "-qec", crictlPath()+" --config "+workDir+"/crictl.yaml exec -it "+id+" tty", os.DevNull)
	// The end of script's input arrives once or twice, and its terminal adds a
	// carriage return until crictl has made it raw.
	typed.out = strings.NewReplacer("^@", "", "\r\r\n", "\r\n").Replace(typed.out)
	s.note("terminal", typed)
	s.note("attach", crictl(ctx, "line\n", "attach", "-i", id))
	const limits = "cd /sys/fs/cgroup; cat memory.max cpu.max 2>/dev/null || cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us"
	read := func() string {
		return strings.Join(strings.Fields(s.must(crictl(ctx, "", "exec", "-s", id, "sh", "-c", limits))), " ")
	}
	s.rows["limits"] = read()
	s.must(crictl(ctx, "", "update", "--cpu-quota", "70000", "--memory", "134217728", id))
	s.rows["limits after the update"] = read()
	s.rows["logs"] = s.until("hello\ngot line", func() string { return s.must(crictl(ctx, "", "logs", id)) })
}

// ends runs containers to their ends.
func (s *stage) ends(ctx context.Context) {
	s.rows["exit code"] = s.end(ctx, s.run(ctx, "ends", images.Busybox, []string{"sh", "-c", "exit 42"}, nil))
	hog := s.run(ctx, "hog", images.Busybox, []string{"sh", "-c", "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"},
		map[string]any{"memory_limit_in_bytes": 32 << 20})
	s.rows["out of memory"] = s.end(ctx, hog)
}

// forward reads the web server's page through a forwarded port.
func (s *stage) forward(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		crictl(ctx, "", "port-forward", s.pod, "18080:80")
	}()
	s.rows["port-forward"] = "nothing"
	for ctx.Err() == nil && s.rows["port-forward"] == "nothing" {
		if r := command(ctx, "", "busybox", "wget", "-T", "2", "-qO-", "http://127.0.0.1:18080/"); r.code == 0 {
			s.rows["port-forward"] = r.out
		}
		time.Sleep(200 * time.Millisecond)
	}
	cancel()
	<-gone
}

// kill ends all processes of the pod, or its machine, and records CRI-O's view
// of a container.
func (s *stage) kill(ctx context.Context, id string) {
	const name = "killed after the restart"
	if s.handler == runc {
		s.must(crictl(ctx, "", "stop", "-t", "0", id))
		s.rows[name] = s.until("CONTAINER_EXITED", func() string { return s.state(ctx, id) })
		return
	}
	s.killQEMU()
	s.rows[name] = s.until("CONTAINER_EXITED", func() string { return s.state(ctx, id) })
}

// killQEMU sends SIGKILL to the pod's machine.
func (s *stage) killQEMU() {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.Fatal(err)
	}
	killed := 0
	for _, path := range lines {
		line, _ := os.ReadFile(path) // it may have ended
		if !strings.Contains(string(line), "qemu-system") || !strings.Contains(string(line), s.pod[:32]) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil {
			s.Errorf("kill QEMU: %v", err)
		}
		killed++
	}
	if killed != 1 {
		s.Errorf("%s: %d QEMUs of pod %s, want one", s.handler, killed, s.pod)
	}
}

// run makes a container of the pod, starts it and returns its id.
func (s *stage) run(ctx context.Context, name, image string, args []string, resources map[string]any) string {
	s.Helper()
	config := s.write("container-"+name, map[string]any{
		"metadata": map[string]any{"name": name}, "image": map[string]any{"image": image}, "command": args,
		"stdin": name == "reader", "log_path": name + ".log", "linux": map[string]any{"resources": resources},
	})
	id := s.must(crictl(ctx, "", "create", "--no-pull", s.pod, config, s.config))
	s.must(crictl(ctx, "", "start", id))
	return id
}

// end waits for a container's end, and returns its exit code and reason.
func (s *stage) end(ctx context.Context, id string) string {
	s.until("CONTAINER_EXITED", func() string { return s.state(ctx, id) })
	status := s.inspect(ctx, id)
	return fmt.Sprintf("%d %s", status.ExitCode, status.Reason)
}

func (s *stage) state(ctx context.Context, id string) string { return s.inspect(ctx, id).State }

// status is the output of "crictl inspect" for a container (CRI's
// ContainerStatus).
type status struct {
	State, Reason string
	ExitCode      int
}

func (s *stage) inspect(ctx context.Context, id string) status {
	var answer struct{ Status status }
	if err := json.Unmarshal([]byte(s.must(crictl(ctx, "", "inspect", id))), &answer); err != nil {
		s.Fatal(err)
	}
	return answer.Status
}

// until calls look until it returns want, for ten seconds, and returns its last
// result.
func (s *stage) until(want string, look func() string) string {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if got := look(); got == want || time.Now().After(deadline) {
			return got
		}
	}
}

func (s *stage) note(row string, r result) { s.rows[row] = fmt.Sprintf("%d %q", r.code, r.out) }

// must returns the output of a command that must not fail.
func (s *stage) must(r result) string {
	s.Helper()
	if r.code != 0 {
		s.Fatalf("%s: %+v", s.handler, r)
	}
	return strings.TrimSpace(r.out)
}

// podFile writes a pod's configuration.
func (s *stage) podFile(name string, namespaces map[string]any) string {
	linux := map[string]any{"cgroup_parent": cgroupParent()}
	if namespaces != nil {
		linux["security_context"] = map[string]any{"namespace_options": namespaces}
	}
	return s.write(name, map[string]any{
		"metadata": map[string]any{"name": name, "namespace": "default", "uid": s.handler + "-" + name, "attempt": 0},
		"hostname": "podname", "log_directory": filepath.Join(s.dir, "logs"), "linux": linux,
	})
}

func (s *stage) write(name string, config map[string]any) string {
	s.Helper()
	data, err := json.Marshal(config)
	if err == nil {
		err = os.MkdirAll(filepath.Join(s.dir, "logs"), 0o755)
	}
	path := filepath.Join(s.dir, name+".json")
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		s.Fatal(err)
	}
	return path
}
