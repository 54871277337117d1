package containerd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// factoryState is the output of kata-runtime factory status.
type factoryState struct {
	Templates []struct {
		Key    string
		Keeper int
	}
	Maker    int
	Failures []struct {
		Key, Reason string
		Times       int
		Next        time.Time
	}
}

func factoryStatus(ctx context.Context, t *testing.T, d *harness.Daemon) factoryState {
	t.Helper()
	out, err := kataRuntime(ctx, d, "factory", "status", "--json", "--config", d.KataConfigPath()).Output()
	var s factoryState
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		t.Fatalf("kata-runtime factory status: %v\n%s", err, out)
	}
	return s
}

// awaitFactory waits until the status is as wanted.
func awaitFactory(ctx context.Context, t *testing.T, d *harness.Daemon, what string, done func(factoryState) bool) factoryState {
	t.Helper()
	for deadline := time.Now().Add(harness.MakerPatience); ; time.Sleep(20 * time.Millisecond) {
		s := factoryStatus(ctx, t, d)
		if done(s) {
			return s
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			t.Fatalf("%s does not come; status %+v; log:\n%s", what, s, d.LogTail(40))
		}
	}
}

// destroyTemplates removes all templates, and ends their makers.
func destroyTemplates(t *testing.T, d *harness.Daemon, dir string) {
	t.Helper()
	out, err := kataRuntime(context.Background(), d, "factory", "destroy", "--config", d.KataConfigPath()).CombinedOutput()
	if _, left := os.Stat(dir); err != nil || !os.IsNotExist(left) {
		t.Errorf("kata-runtime factory destroy: %v, %s; the directory: %v", err, out, left)
	}
}

// surroundings are where a process is: its cgroups and its namespaces.
func surroundings(pid int) (map[string]string, error) {
	place := make(map[string]string)
	for _, ns := range []string{"net", "mnt", "pid", "ipc", "uts", "user"} {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil {
			return nil, err
		}
		place[ns] = name
	}
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	place["cgroup"] = string(cgroup)
	return place, err
}

// wantMakersPlace fails the test unless a maker is in the namespaces of its engine,
// and in a cgroup that is neither the engine's nor a pod's, with bounds.
func wantMakersPlace(t *testing.T, maker, engine int) {
	t.Helper()
	own := spareCgroup(maker)
	controllers := []string{"memory", "pids", "cpu"}
	if hasV2() {
		controllers = []string{"v2"}
	}
	for _, c := range controllers {
		// A maker moves there only after it has taken its lock, by which it is found.
		for deadline := time.Now().Add(harness.MakerPatience); placeOf(t, maker, c, nil) != own; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the maker's cgroup for %s is %q, want %q", c, placeOf(t, maker, c, nil), own)
			}
		}
	}
	wantBounded(t, own)
	want, err := surroundings(engine)
	if err != nil {
		t.Fatal(err)
	}
	got, err := surroundings(maker)
	if err != nil {
		t.Fatal(err)
	}
	delete(want, "cgroup")
	for what, place := range want {
		if got[what] != place {
			t.Errorf("the maker's %s is %q, containerd's %q", what, got[what], place)
		}
	}
}

// A pod that misses its template boots, and has it made by a process that is
// not part of the pod, and is not charged to it or to the engine, and survives the shim. Another pod meanwhile starts no
// maker. Later pods start from the template.
func TestPodHasTemplateMade(t *testing.T) {
	withTemplates(t, func(ctx context.Context, t *testing.T, d *harness.Daemon, _ string) {
		recorder := d.Record(ctx)
		defer recorder.Close()
		mark := d.LogSize()
		first, template := startIdle(ctx, t, d)
		if template != "" {
			t.Errorf("a pod came from template %q before there was one", template)
		}
		awaitLog(ctx, t, d, mark, "a template is made in the background")
		maker := awaitFactory(ctx, t, d, "the maker", func(s factoryState) bool { return s.Maker != 0 || len(s.Templates) > 0 }).Maker
		identity, err := persist.Identify(maker)
		if maker == 0 || err != nil {
			t.Fatalf("the template was made before the test could see its maker (%v)", err)
		}
		wantMakersPlace(t, maker, d.PID())
		shim, err := d.One(harness.KindShim)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(shim.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{"exit", "delete"} {
			if _, err := recorder.Await(ctx, first.Box.ID(), event); err != nil {
				t.Error(err)
			}
		}
		if !identity.Alive() && len(factoryStatus(ctx, t, d).Templates) == 0 {
			t.Error("the maker has ended with the shim")
		}
		mark = d.LogSize()
		if _, template := startIdle(ctx, t, d); template == "" && factoryStatus(ctx, t, d).Maker == maker {
			if log := d.LogSince(mark, 100000); strings.Contains(log, "made in the background") {
				t.Errorf("a second maker is started:\n%s", log)
			}
		}
		made := awaitFactory(ctx, t, d, "the template", func(s factoryState) bool { return len(s.Templates) == 1 && s.Maker == 0 })
		if len(made.Failures) > 0 {
			t.Errorf("status %+v", made)
		}
		if _, template := startIdle(ctx, t, d); template != made.Templates[0].Key {
			t.Errorf("the pod's template is %q, want %q", template, made.Templates[0].Key)
		}
	})
}

// kata-runtime factory destroy ends a maker, and nothing of it is left.
func TestDestroyEndsMaker(t *testing.T) {
	withTemplates(t, func(ctx context.Context, t *testing.T, d *harness.Daemon, dir string) {
		startIdle(ctx, t, d)
		s := awaitFactory(ctx, t, d, "the maker", func(s factoryState) bool { return s.Maker != 0 || len(s.Templates) > 0 })
		identity, err := persist.Identify(s.Maker)
		if s.Maker == 0 || err != nil {
			t.Fatalf("the template was made before the test could see its maker (%v)", err)
		}
		destroyTemplates(t, d, dir)
		if err := identity.Await(time.Minute); err != nil {
			t.Errorf("the maker: %v", err)
		}
		if _, err := d.One(harness.KindVMM); err != nil {
			t.Errorf("after the maker's end: %v", err)
		}
	})
}

// A template that cannot be made is logged once, and not retried immediately;
// pods still run.
func TestTemplateCannotBeMade(t *testing.T) {
	needVM(t)
	dir := filepath.Join(t.TempDir(), "templates")
	failing := func(o *harness.Options) {
		o.Env = []string{"KATABOX_FAILPOINT=save"}
		useTemplates(o, dir)
	}
	newestOwn(t, failing, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		t.Cleanup(func() { destroyTemplates(t, d, dir) })
		mark := d.LogSize()
		startIdle(ctx, t, d)
		s := awaitFactory(ctx, t, d, "the failure", func(s factoryState) bool { return len(s.Failures) == 1 })
		if f := s.Failures[0]; f.Times != 1 || !strings.Contains(f.Reason, "failpoint save") || s.Maker != 0 && len(s.Templates) != 0 {
			t.Errorf("status %+v", s)
		}
		awaitLog(ctx, t, d, mark, "level=warning", "the template could not be made", "failpoint save")
		mark = d.LogSize()
		startIdle(ctx, t, d)
		if time.Now().After(s.Failures[0].Next) {
			t.Skip("the second pod took so long that the next try was due")
		}
		awaitLog(ctx, t, d, mark, "level=warning", "no template is made", "not tried again before")
		if log := d.LogSince(mark, 100000); strings.Contains(log, "made in the background") {
			t.Errorf("it is tried again at once:\n%s", log)
		}
	})
}

// A maker that is killed at any step leaves no process, and the next one
// removes everything else that it left.
func TestKilledTemplateMaker(t *testing.T) {
	withTemplates(t, func(ctx context.Context, t *testing.T, d *harness.Daemon, dir string) {
		for _, step := range []string{"state", "user", "vm", "hardware", "vsock", "resume", "agent", "save"} {
			killMakerAt(ctx, t, d, step)
		}
		key := makeTemplate(ctx, t, d)
		entries, err := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got, want := strings.Join(names, " "), key+" lock"; got != want || err != nil {
			t.Errorf("the directory has %q, %v; want %q", got, err, want)
		}
	})
}

// killMakerAt kills a maker that has begun a step.
func killMakerAt(ctx context.Context, t *testing.T, d *harness.Daemon, step string) {
	t.Helper()
	cmd := kataRuntime(ctx, d, "factory", "init", "--config", d.KataConfigPath())
	words, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), d.TagEnv())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := false
	lines := bufio.NewScanner(words)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "template: "+step {
			seen = true
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_, _ = io.Copy(io.Discard, words)
	if err := cmd.Wait(); err == nil || !seen {
		t.Errorf("killed at step %s (seen: %v): %v", step, seen, err)
	}
}
