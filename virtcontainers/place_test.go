package virtcontainers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// cgroupPod boots a pod with its own cgroups.
func cgroupPod(t *testing.T, change func(*virtcontainers.Options)) (*pod, *logged) {
	t.Helper()
	host, parent := newCgroupHost(t)
	p := &pod{t: t, host: host, observer: newObserver()}
	opts := cgroupOptions(p.observer, parent, false)
	if change != nil {
		change(&opts)
	}
	ctx, lines := withLog(t.Context())
	var err error
	if p.Sandbox, err = virtcontainers.New(ctx, p.host.Platform(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return p, lines
}

// podFile reads a file of the pod's own cgroup, in the hierarchy that has it.
func (p *pod) podFile(name string) string {
	p.t.Helper()
	rec, err := persist.Load(p.host.Platform().StateDir(), sandboxID)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, dir := range rec.Cgroups {
		if !strings.HasSuffix(dir, "/kata_"+sandboxID) {
			continue
		}
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	p.t.Skipf("no hierarchy of this host has %s", name)
	return ""
}

// hasV2 reports whether the host's controllers are cgroup v2's.
func hasV2() bool {
	_, err := os.Stat(hostcgroup.DefaultRoot + "/cgroup.controllers")
	return err == nil
}

// shares returns the pod's weight as its cgroup's file shows it.
func (p *pod) shares() string {
	p.t.Helper()
	if hasV2() {
		return p.podFile("cpu.weight")
	}
	return p.podFile("cpu.shares")
}

// is returns a pod's place as its cgroup's files show it: CPUs and shares. A cgroup
// of v2 that has all CPUs of its parent names none.
func (p *pod) is() string {
	p.t.Helper()
	if hasV2() {
		return p.podFile("cpuset.cpus.effective") + " " + p.shares()
	}
	return p.podFile("cpuset.cpus") + " " + p.shares()
}

// asShown returns what shares returns for a number of shares.
func asShown(shares uint64) string {
	if hasV2() {
		shares = cgroups.ConvertCPUSharesToCgroupV2Value(shares)
	}
	return fmt.Sprint(shares)
}

// A pod's cgroup has the CPUs and the shares of the containers that have not
// ended, whether the machine keeps its size or not.
func TestPodPlace(t *testing.T) {
	needTwoCPUs(t)
	for _, static := range []bool{false, true} {
		t.Run(fmt.Sprintf("static=%v", static), func(t *testing.T) {
			p, _ := cgroupPod(t, func(o *virtcontainers.Options) { o.Config.Runtime.StaticSizing = static })
			containers := map[string]*virtcontainers.Container{}
			for _, step := range []struct{ id, cpus, want string }{
				{sandboxID, "", "0-1 " + asShown(100)}, {"a", "0", "0 " + asShown(200)},
				{"b", "1", "0-1 " + asShown(300)}, {"c", "1", "0-1 " + asShown(400)},
			} {
				c, err := p.placed(t.Context(), step.id, step.cpus, 100)
				if err != nil {
					t.Fatal(err)
				}
				containers[step.id] = c
				if got := p.is(); got != step.want {
					t.Errorf("with container %s the pod has %q, want %q", step.id, got, step.want)
				}
			}
			becomes := func(what, want string) {
				t.Helper()
				eventually(t, what+": "+want, func() bool { return p.is() == want })
			}
			p.exits("a", "", 0)
			becomes("one has ended", "1 "+asShown(300))
			shares := uint64(50)
			if err := containers["b"].Update(t.Context(), encoded(t, &specs.LinuxResources{
				CPU: &specs.LinuxCPU{Cpus: "0", Shares: &shares},
			})); err != nil {
				t.Error(err)
			}
			becomes("an update", "0-1 "+asShown(250))
			if _, err := containers["c"].Delete(t.Context()); err != nil {
				t.Error(err)
			}
			becomes("one was deleted", "0 "+asShown(150))
			p.host.Agent.Fail("Create", errInjected)
			if _, err := p.placed(t.Context(), "d", "1", 100); err == nil {
				t.Error("a create that fails: no error")
			}
			becomes("a create has failed", "0 "+asShown(150))
			p.host.Agent.Fail("Update", errInjected)
			if err := containers["b"].Update(t.Context(), encoded(t, &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "1"}})); err == nil {
				t.Error("an update that fails: no error")
			}
			becomes("an update has failed", "0 "+asShown(150))
		})
	}
}

// A single container's place is its pod's.
func TestSingleContainersPlace(t *testing.T) {
	needTwoCPUs(t)
	p, _ := cgroupPod(t, nil)
	if _, err := p.placed(t.Context(), sandboxID, "1", 0); err != nil {
		t.Fatal(err)
	}
	if got := p.is(); got != "1 "+asShown(1024) {
		t.Errorf("the pod has %q", got)
	}
}

// The shares of a pause container do not apply to its pod (containerd's and
// iSulad's are 2, the minimum).
func TestPauseDoesNotStarveThePod(t *testing.T) {
	needTwoCPUs(t)
	p, _ := cgroupPod(t, nil)
	for _, step := range []struct {
		id           string
		shares, want uint64
	}{{sandboxID, 2, 1024}, {"work", 100, 100}, {"more", 2, 102}} {
		opts := p.options(step.id, nil)
		opts.Bundle.Spec.Annotations = map[string]string{"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": sandboxID}
		if step.id == sandboxID {
			opts.Bundle.Spec.Annotations["io.kubernetes.docker.type"] = "podsandbox"
		}
		opts.Bundle.Spec.Linux.Resources = &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &step.shares}}
		if _, err := p.Create(t.Context(), opts, ignore); err != nil {
			t.Fatal(err)
		}
		if got, want := p.shares(), asShown(step.want); got != want {
			t.Errorf("with container %s the pod has %s shares, want %s", step.id, got, want)
		}
	}
}

// A place that cannot be parsed fails the create; one that the kernel refuses
// does so only if the pod must be in its cgroup. Both leave the pod unchanged.
func TestPlacesThatCannotBe(t *testing.T) {
	needTwoCPUs(t)
	for _, only := range []bool{false, true} {
		t.Run(fmt.Sprintf("only=%v", only), func(t *testing.T) {
			p, _ := cgroupPod(t, func(o *virtcontainers.Options) { o.Config.Runtime.SandboxCgroupOnly = only })
			ctx, lines := withLog(t.Context())
			c, err := p.placed(ctx, sandboxID, "1", 7)
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.placed(ctx, "a", "0-x", 7)
			wantError(t, "a cpuset that cannot be read", err, errdefs.IsInvalidArgument, `create container a: size: cpuset "0-x"`)
			err = c.Update(ctx, encoded(t, &specs.LinuxResources{CPU: &specs.LinuxCPU{Mems: "?"}}))
			wantError(t, "nodes that cannot be read", err, errdefs.IsInvalidArgument, `memory nodes "?"`)
			_, err = p.placed(ctx, "b", "0,8191", 7)
			if (err != nil) != only {
				t.Errorf("a CPU that is not there: %v", err)
			}
			if diff := cmp.Diff(map[bool]int{true: 0, false: 1}[only], lines.count("does not have all of its containers' settings")); diff != "" {
				t.Errorf("warnings: %s", diff)
			}
			want := "1 " + asShown(7)
			if only {
				wantError(t, "a CPU that is not there", err, func(error) bool { return true }, `CPUs "0-1,8191"`)
			} else {
				want = "1 " + asShown(14)
			}
			eventually(t, "the pod as it was", func() bool { return p.is() == want })
		})
	}
}

// A v2 tree without the controllers that divide CPUs, as a hybrid host has it,
// still places the pod, and logs what it cannot do.
func TestPodPlaceWithoutControllers(t *testing.T) {
	const root = hostcgroup.DefaultRoot + "/unified"
	if controllers, err := os.ReadFile(root + "/cgroup.controllers"); err != nil || strings.Contains(string(controllers), "cpu") {
		t.Skipf("the host has no v2 tree beside v1's: %v", err)
	}
	for _, only := range []bool{false, true} {
		host, parent := newCgroupHost(t)
		platform := host.Platform()
		platform.CgroupRoot = root
		p := &pod{t: t, host: host, observer: newObserver()}
		var err error
		if p.Sandbox, err = virtcontainers.New(t.Context(), platform, cgroupOptions(p.observer, parent, only)); err != nil {
			t.Fatal(err)
		}
		ctx, lines := withLog(t.Context())
		if _, err := p.placed(ctx, sandboxID, "", 7); err != nil {
			t.Errorf("only=%v: shares: %v", only, err)
		}
		_, err = p.placed(ctx, "a", "0", 7)
		if only {
			wantError(t, "a cpuset", err, errdefs.IsNotFound, "no cpuset controller")
		} else if err != nil || lines.count("no cpuset controller") != 1 {
			t.Errorf("a cpuset: %v, %d warnings", err, lines.count("no cpuset controller"))
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(root + parent); err == nil {
			t.Errorf("%s is left", root+parent)
		}
	}
}

// oomScore returns the machine's oom_score_adj on the host.
func (p *pod) oomScore() string {
	p.t.Helper()
	rec, err := persist.Load(p.host.Platform().StateDir(), sandboxID)
	if err != nil {
		p.t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", rec.VM.PID))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// The OOM killer takes the machine as soon as it would take the first of its
// containers; the pause container's score does not protect it.
func TestOOMScore(t *testing.T) {
	p := newPod(t)
	run := func(id string, annotations map[string]string, adj *int) *virtcontainers.Container {
		t.Helper()
		opts := p.options(id, nil)
		opts.Bundle.Spec.Annotations, opts.Bundle.Spec.Process.OOMScoreAdj = annotations, adj
		c, err := p.Create(t.Context(), opts, ignore)
		if err != nil {
			t.Fatal(err)
		}
		p.start(initOf(t, c))
		return c
	}
	pause := map[string]string{"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": sandboxID}
	var c1 *virtcontainers.Container
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"with a pause container", func() { run(sandboxID, pause, new(-998)) }, "0"},
		{"with a container of 300", func() { c1 = run("c1", nil, new(300)) }, "300"},
		{"with one that says nothing", func() { run("c2", nil, nil) }, "300"},
	} {
		step.do()
		if got := p.oomScore(); got != step.want {
			t.Errorf("%s: the machine's score is %s, want %s", step.what, got, step.want)
		}
	}
	p.exits("c1", "", 0)
	statusOf(t, initOf(t, c1))
	if _, err := c1.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the score of the containers that are left", func() bool { return p.oomScore() == "0" })
}
