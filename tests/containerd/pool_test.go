package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// poolDir is where spares are.
const poolDir = "/run/kata-containers/pool"

// spareState is a spare in the output of kata-runtime factory status.
type spareState struct {
	PID        int
	State, Key string
}

func spares(ctx context.Context, t *testing.T, d *harness.Daemon) []spareState {
	t.Helper()
	out, err := kataRuntime(ctx, d, "factory", "status", "--json", "--config", d.KataConfigPath()).Output()
	var s struct{ Spares []spareState }
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		t.Fatalf("kata-runtime factory status: %v\n%s", err, out)
	}
	return s.Spares
}

// awaitSpares waits until that many are ready, and there are no others.
func awaitSpares(ctx context.Context, t *testing.T, d *harness.Daemon, want int) map[int]spareState {
	t.Helper()
	for deadline := time.Now().Add(harness.MakerPatience); ; time.Sleep(50 * time.Millisecond) {
		all, ready := spares(ctx, t, d), make(map[int]spareState)
		for _, s := range all {
			if s.State == "ready" {
				ready[s.PID] = s
			}
		}
		if len(ready) == want && len(all) == want {
			return ready
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			t.Fatalf("%d spares are not there: %+v; failures %+v; log:\n%s", want, all, factoryStatus(ctx, t, d).Failures, d.LogTail(40))
		}
	}
}

// withPool gives a test a daemon whose configuration asks for two spares.
func withPool(t *testing.T, run func(ctx context.Context, t *testing.T, d *harness.Daemon)) {
	t.Helper()
	needVM(t)
	dir := filepath.Join(t.TempDir(), "templates")
	use := func(o *harness.Options) {
		o.Kata.Extra = fmt.Sprintf("enable_annotations = [\"default_memory\", \"kernel_params\"]\n[factory]\nenable_template = true\ntemplate_path = %q\nvm_cache_number = 2\n", dir)
	}
	newestOwn(t, use, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		t.Cleanup(func() { destroySpares(t, d, dir) })
		run(ctx, t, d)
	})
}

// destroySpares ends all spares, and checks that nothing of them is left.
func destroySpares(t *testing.T, d *harness.Daemon, dir string) {
	t.Helper()
	before := spares(context.Background(), t, d)
	destroyTemplates(t, d, dir)
	if left := spares(context.Background(), t, d); len(left) != 0 {
		t.Errorf("after factory destroy: %+v", left)
	}
	for _, s := range before {
		if harness.Runs(s.PID) {
			t.Errorf("spare %d still runs", s.PID)
		}
		awaitNoCgroup(t, spareCgroup(s.PID))
	}
}

// spareCgroup is the cgroup of a spare that is not claimed.
func spareCgroup(pid int) string { return fmt.Sprintf("/kata_overhead/spares/%d", pid) }

// wantSpareCgroup fails the test unless a spare and its machine are in the spare's
// cgroup, which is bounded.
func wantSpareCgroup(t *testing.T, pid int) {
	t.Helper()
	wantBounded(t, spareCgroup(pid))
	pids := []string{strconv.Itoa(pid)}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if kids, err := os.ReadFile(task); err == nil {
			pids = append(pids, strings.Fields(string(kids))...)
		}
	}
	if len(pids) < 2 {
		t.Errorf("spare %d has no machine", pid)
	}
	for _, id := range pids {
		text, err := os.ReadFile("/proc/" + id + "/cgroup")
		if err != nil {
			t.Error(err)
			continue
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if (fields[1] == "memory" || hasV2()) && fields[2] != spareCgroup(pid) {
				t.Errorf("process %s of spare %d is in %s", id, pid, fields[2])
			}
		}
	}
}

// poolBootLine is the shim's line about the last boot since mark.
func poolBootLine(t *testing.T, d *harness.Daemon, mark int64) string {
	t.Helper()
	booted := ""
	for line := range strings.Lines(d.LogSince(mark, 100000)) {
		if strings.Contains(line, "sandbox booted") {
			booted = line
		}
	}
	return booted
}

// facts are what of a shim must not depend on whether it was a spare.
func facts(t *testing.T, pid int) map[string]string {
	t.Helper()
	got, err := surroundings(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"comm", "oom_score_adj", "limits"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(text)
	}
	if got["cwd"], err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	// A spare's command line had more room.
	got["args"] = strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")
	got["nice"] = niceness(t, pid)
	return got
}

// niceness lists the nice values of a process's threads, each once: their number
// depends on the load.
func niceness(t *testing.T, pid int) string {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var nice []string
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		nice = append(nice, fields[19-3])
	}
	slices.Sort(nice)
	return strings.Join(slices.Compact(nice), " ")
}

// machineFacts are what of a pod's machine must not depend on whether it was a
// spare's.
func machineFacts(t *testing.T, d *harness.Daemon, c *harness.Container) map[string]string {
	t.Helper()
	state, err := persist.Load("/run/kata-containers/sandboxes", d.HostName(c.Box.ID()))
	if err != nil {
		t.Fatal(err)
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", state.VM.PID))
	if err != nil {
		t.Fatal(err)
	}
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", state.VM.PID))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"machine's nice": niceness(t, state.VM.PID), "machine's oom_score_adj": string(score),
		"machine's cgroup": strings.ReplaceAll(string(cgroup), d.HostName(c.Box.ID()), "NAME"),
	}
}

// Pods claim spares, each its own, and new ones take their place. A pod on a spare
// is like any other, and so is its shim.
func TestPool(t *testing.T) {
	withPool(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		mark := d.LogSize()
		first, _ := startIdle(ctx, t, d)
		if line := poolBootLine(t, d, mark); !strings.Contains(line, "spare=false") {
			t.Errorf("the first pod had a spare: %s", line)
		}
		shim, err := d.One(harness.KindShim)
		if err != nil {
			t.Fatal(err)
		}
		plain, machine := facts(t, shim.PID), machineFacts(t, d, first)
		was := awaitSpares(ctx, t, d, 2)
		for pid := range was {
			wantSpareCgroup(t, pid)
		}
		if err := first.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		seen := make(map[int]bool)
		for i := range 4 {
			mark := d.LogSize()
			volume := t.TempDir()
			const limit = 400 << 20 // more than the machine has: memory is plugged
			c, _ := startIdle(ctx, t, d, withBind(volume, "/volume"), oci.WithMemoryLimit(limit), oci.WithHostname("pod"+strconv.Itoa(i)))
			if line := poolBootLine(t, d, mark); !strings.Contains(line, "spare=true") || strings.Contains(line, `template=""`) {
				t.Fatalf("pod %d: %s; log:\n%s", i, line, d.LogTail(40))
			}
			shim, err := d.One(harness.KindShim)
			if err != nil {
				t.Fatal(err)
			}
			if _, spare := was[shim.PID]; !spare || seen[shim.PID] {
				t.Errorf("pod %d has shim %d; the spares were %+v", i, shim.PID, was)
			}
			seen[shim.PID] = true
			awaitNoCgroup(t, spareCgroup(shim.PID))
			compareShims(t, plain, facts(t, shim.PID), first.Box.ID(), c.Box.ID())
			compareShims(t, machine, machineFacts(t, d, c), "", "")
			usePod(ctx, t, c, volume, "pod"+strconv.Itoa(i))
			was = awaitSpares(ctx, t, d, 2)
			if err := c.Remove(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// compareShims compares the facts of two pods' shims.
func compareShims(t *testing.T, want, got map[string]string, wantID, gotID string) {
	t.Helper()
	for name := range got {
		if _, there := want[name]; !there {
			t.Errorf("the claimed shim has %s: %s", name, got[name])
		}
	}
	for name, value := range want {
		if wantID != "" {
			value = strings.ReplaceAll(value, wantID, gotID)
		}
		if name != "cgroup" && got[name] != value {
			t.Errorf("the claimed shim's %s is\n%s\nwant\n%s", name, got[name], value)
		}
	}
}

// usePod uses a pod's parts.
func usePod(ctx context.Context, t *testing.T, c *harness.Container, volume, name string) {
	t.Helper()
	before := time.Now().Unix()
	now, err := strconv.ParseInt(strings.TrimSpace(execOut(ctx, t, c, harness.ExecConfig{Args: []string{"date", "+%s"}})), 10, 64)
	if err != nil || now < before-1 || now > time.Now().Unix()+1 {
		t.Errorf("the guest's clock shows %d, the host's %d, %v", now, before, err)
	}
	if got := strings.TrimSpace(execOut(ctx, t, c, harness.ExecConfig{Args: []string{"hostname"}})); got != name {
		t.Errorf("hostname %q", got)
	}
	execOut(ctx, t, c, harness.ExecConfig{Args: script("echo guest > /volume/file && dd if=/dev/zero of=/dev/shm/x bs=1M count=40 2>/dev/null")})
	if text, err := os.ReadFile(filepath.Join(volume, "file")); string(text) != "guest\n" || err != nil {
		t.Errorf("the volume has %q, %v", text, err)
	}
}

// A spare that is killed leaves nothing, and the next pod starts and has another
// made. A claimed one that is killed is a pod whose shim died.
func TestKilledSpare(t *testing.T) {
	withPool(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		startIdle(ctx, t, d)
		for pid := range awaitSpares(ctx, t, d, 2) {
			kill(t, pid)
		}
		mark := d.LogSize()
		startIdle(ctx, t, d)
		if line := poolBootLine(t, d, mark); !strings.Contains(line, "spare=false") {
			t.Errorf("a pod started on a dead spare: %s", line)
		}
		awaitSpares(ctx, t, d, 2)
		recorder := d.Record(ctx)
		defer recorder.Close()
		mark = d.LogSize()
		c, _ := startIdle(ctx, t, d)
		if line := poolBootLine(t, d, mark); !strings.Contains(line, "spare=true") {
			t.Errorf("the pod had no spare: %s", line)
		}
		state, err := persist.Load("/run/kata-containers/sandboxes", d.HostName(c.Box.ID()))
		if err != nil {
			t.Fatal(err)
		}
		awaitSpares(ctx, t, d, 2) // a shim that is killed sooner orders none
		kill(t, state.Shim.PID)
		for _, event := range []string{"exit", "delete"} {
			if _, err := recorder.Await(ctx, c.Box.ID(), event); err != nil {
				t.Error(err)
			}
		}
		if err := state.VM.Await(10 * time.Second); err != nil {
			t.Errorf("the machine of a killed shim: %v", err)
		}
		awaitSpares(ctx, t, d, 2)
		if os.Getenv(harness.EnvPool) != "" {
			return // other daemons' spares are there, too
		}
		entries, err := os.ReadDir(poolDir)
		if err != nil || len(entries) != 4 {
			t.Errorf("the pool has %v, %v; want two spares with a socket each", entries, err)
		}
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := persist.Identify(pid)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err == nil {
		err = p.Await(10 * time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A pod whose machine is another one boots, and the spare that its start claimed
// ends.
func TestPoolThatDoesNotFit(t *testing.T) {
	withPool(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		startIdle(ctx, t, d)
		awaitSpares(ctx, t, d, 2)
		for _, annotations := range []map[string]string{
			{"io.katacontainers.config.hypervisor.kernel_params": "katabox.test=1"},
			{"io.katacontainers.config.factory.enable_template": "false"},
		} {
			mark := d.LogSize()
			c, template := startIdle(ctx, t, d, oci.WithAnnotations(annotations))
			if line := poolBootLine(t, d, mark); !strings.Contains(line, "spare=false") || template != "" {
				t.Errorf("%v: %s", annotations, line)
			}
			awaitLog(ctx, t, d, mark, "the guest boots: the spare machine does not fit the pod")
			awaitSpares(ctx, t, d, 2)
			if err := c.Remove(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A pod whose annotations want a larger machine takes a spare, which grows.
func TestPoolForLargerPod(t *testing.T) {
	withPool(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		startIdle(ctx, t, d)
		awaitSpares(ctx, t, d, 2)
		mark := d.LogSize()
		const wanted = 512 << 10 // in KiB
		larger := oci.WithAnnotations(map[string]string{"io.katacontainers.config.hypervisor.default_memory": strconv.Itoa(wanted >> 10)})
		c, _ := startIdle(ctx, t, d, larger)
		if line := poolBootLine(t, d, mark); !strings.Contains(line, "spare=true") {
			t.Errorf("it has no spare: %s", line)
		}
		out := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"awk", "/MemTotal/ { print $2 }", "/proc/meminfo"}})
		total, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil || total < wanted*8/10 || total > wanted {
			t.Errorf("the guest has %d KiB, %v, want almost %d", total, err, wanted)
		}
	})
}

// Spares end when the configuration asks for none any more.
func TestPoolTurnedOff(t *testing.T) {
	withPool(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		startIdle(ctx, t, d)
		awaitSpares(ctx, t, d, 2)
		text, err := os.ReadFile(d.KataConfigPath())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 0} {
			changed := strings.Replace(string(text), "vm_cache_number = 2", fmt.Sprintf("vm_cache_number = %d", n), 1)
			if err := os.WriteFile(d.KataConfigPath(), []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			awaitSpares(ctx, t, d, n)
		}
	})
}
