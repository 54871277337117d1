package sizing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/config"
)

// newPod returns a pod that keeps its initial size, with its machine.
func newPod(t *testing.T) *Pod {
	t.Helper()
	c := new(config.Config)
	c.Runtime.StaticSizing = true
	return podOf(t, c)
}

func podOf(t *testing.T, c *config.Config) *Pod {
	t.Helper()
	c.Hypervisor.VCPUs, c.Hypervisor.MaxVCPUs, c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB = 1, 4, 256, 1024
	p, err := New(t.Context(), Options{
		SandboxID: "pod", Config: c, Ending: func() bool { return false },
		WhileAlive: context.WithCancel,
		EnterAwake: func(context.Context) (func(), error) { return func() {}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	vm, err := new(fake.Monitor).Launch(t.Context(), hypervisor.Spec{
		ID: "pod", VCPUs: 1, MaxVCPUs: 4, MemoryMiB: 256, MaxMemoryMiB: 1024, MemoryModel: hypervisor.MemoryVirtio,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.Account(t.Context(), vm, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// inherited is the OOM score that the processes of TestScoresFromTheStart begin
// with, as if it were their engine's.
const inherited = "500"

// process starts a process with the inherited score.
func process(t *testing.T) (pid int, score func() string) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	file := fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid)
	if err := os.WriteFile(file, []byte(inherited), 0); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
}

// running is a machine whose process exists.
type running struct {
	hypervisor.VM
	pid int
}

func (r running) PID() int { return r.pid }

// A machine and its file server do not have the engine's OOM score while there
// is no container yet.
func TestScoresFromTheStart(t *testing.T) {
	p := newPod(t)
	vm, ofVM := process(t)
	daemon, ofDaemon := process(t)
	if err := p.Account(t.Context(), running{p.vm, vm}, daemon); err != nil {
		t.Fatal(err)
	}
	if ofVM() != "0" || ofDaemon() != "0" {
		t.Errorf("the scores are %s and %s, want 0", ofVM(), ofDaemon())
	}
}

func container(id string, memory int64) Container {
	return Container{ID: id, Spec: &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{
		Resources: &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory}},
	}}}
}

// limit returns a container's memory limit in bytes; 0 if there is no such
// container.
func (p *Pod) limit(id string) int64 {
	if a := p.get(id); a != nil {
		return *a.limits.Memory.Limit
	}
	return 0
}

const lower = `{"memory":{"limit":1000}}`

func TestAdmitUpdateRelease(t *testing.T) {
	p := newPod(t)
	if _, err := p.Admit(t.Context(), container("c1", 4096)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		answer error
		want   int64
	}{{errors.New("refused"), 4096}, {nil, 1000}} {
		err := p.Update(t.Context(), "c1", []byte(lower), func(*specs.LinuxResources) error { return test.answer })
		if !errors.Is(err, test.answer) || p.limit("c1") != test.want {
			t.Errorf("an update answered %v: %v, the limit is %d, want %d", test.answer, err, p.limit("c1"), test.want)
		}
	}
	for range 2 {
		p.Release("c1")
		if len(p.living()) != 0 {
			t.Error("the container counts after its release")
		}
	}
}

// A container that ends while its limits are changed is not added again, and
// its Release does not block.
func TestReleaseDuringUpdate(t *testing.T) {
	for _, answer := range []error{errors.New("it has ended"), nil} {
		p := newPod(t)
		if _, err := p.Admit(t.Context(), container("c1", 4096)); err != nil {
			t.Fatal(err)
		}
		_ = p.Update(t.Context(), "c1", []byte(lower), func(*specs.LinuxResources) error {
			p.Release("c1")
			return answer
		})
		if len(p.living()) != 0 {
			t.Errorf("an update answered %v: the container is back", answer)
		}
	}
}

// Changes are serialized: a second one waits within its context.
func TestToken(t *testing.T) {
	p := newPod(t)
	if err := p.hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Admit(ctx, container("c1", 1)); !errors.Is(err, context.Canceled) || len(p.living()) != 0 {
		t.Errorf("admitted: %v", err)
	}
	p.letGo()
}

// obliging is a guest that uses all that its machine has.
type obliging struct{ vm *fake.VM }

func (g obliging) SetResources(context.Context, uint32, uint64) (*api.SetResourcesResponse, error) {
	cpus, memory := g.vm.Size()
	return &api.SetResourcesResponse{Cpus: cpus, MemoryMib: memory}, nil
}

func (obliging) LimitContainers(context.Context, uint64, uint64) error { return nil }

// growingPod returns a pod whose machine runs and changes its size.
func growingPod(t *testing.T) (*Pod, *fake.VM) {
	t.Helper()
	c := new(config.Config)
	c.Hypervisor.VirtioMem = true
	p := podOf(t, c)
	vm := p.vm.(*fake.VM)
	if err := vm.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Connect(obliging{vm})
	return p, vm
}

// A container gets the vCPUs that it is to have, also if the guest has released them
// after the machine was made smaller.
func TestCPUsReleasedLate(t *testing.T) {
	p, vm := growingPod(t)
	c := container("c1", 256<<20)
	quota, period := int64(300_000), uint64(100_000)
	c.Spec.Linux.Resources.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	if _, err := p.Admit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	cpus, memory := vm.Size()
	vm.KeepSize(true)
	p.Release("c1")
	if err := p.newLookout().follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, _ := vm.Size(); now != cpus || cpus < 3 {
		t.Fatalf("the machine has %d vCPUs, had %d", now, cpus)
	}
	vm.KeepSize(false)
	if _, err := p.Admit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if now, nowMiB := vm.Size(); now != cpus || nowMiB != memory {
		t.Errorf("%d vCPUs and %d MiB, want %d and %d", now, nowMiB, cpus, memory)
	}
}

// A machine that is paused is not asked to become smaller, and meanwhile containers
// can be admitted.
func TestShrinkWaitsUntilAwake(t *testing.T) {
	p, vm := growingPod(t)
	asked, awake, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.opts.EnterAwake = func(context.Context) (func(), error) {
		close(asked)
		<-awake
		return func() { close(left) }, nil
	}
	for _, id := range []string{"c1", "c2"} {
		if _, err := p.Admit(t.Context(), container(id, 256<<20)); err != nil {
			t.Fatal(err)
		}
	}
	_, before := vm.Size()
	p.Release("c1")
	ended := make(chan error, 1)
	go func() { ended <- p.newLookout().follow(t.Context()) }()
	select {
	case <-asked:
	case err := <-ended:
		t.Fatalf("it did not wait for the machine: %v", err)
	}
	if _, err := p.Admit(t.Context(), container("c2", 256<<20)); err != nil {
		t.Errorf("while the shrinking waits: %v", err)
	}
	if _, now := vm.Size(); now != before {
		t.Errorf("%d MiB while the machine is paused, had %d", now, before)
	}
	close(awake)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-left
	if _, now := vm.Size(); now >= before {
		t.Errorf("%d MiB in the end, had %d", now, before)
	}
}

// The CPUs on which a pause container runs (CRI-O's infra_ctr_cpuset) are no vCPUs.
func TestPauseNeedsNothing(t *testing.T) {
	p := newPod(t)
	pause := container("pod", 256<<20)
	pause.Pause, pause.Spec.Linux.Resources.CPU = true, &specs.LinuxCPU{Cpus: "0-2"}
	if _, err := p.Admit(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	if got := p.wanted(); got.VCPUs != 1 || got.MemoryMiB != 256 {
		t.Errorf("a pod of a pause container should have %d vCPUs and %d MiB, want 1 and 256", got.VCPUs, got.MemoryMiB)
	}
}

// A pod of Kubernetes has no vCPUs for CPUs of the node that it shares with other pods.
func TestSharedCPUsOfKubernetes(t *testing.T) {
	kubernetes := map[string]string{"io.kubernetes.cri.sandbox-cpu-shares": "2"}
	for name, test := range map[string]struct {
		hints Hints
		want  uint32
	}{
		"containerd": {Hints{Annotations: kubernetes}, 1},
		"CRI-O":      {Hints{Annotations: map[string]string{"pod-linux-resources.crio.io": `{"cpu_shares":2}`}}, 1},
		"no pause":   {Hints{Pod: &specs.LinuxResources{}}, 1},
		"Docker":     {Hints{}, 4},
	} {
		p := newPod(t)
		p.opts.Hints = test.hints
		c, shares := container("c", 0), uint64(2)
		c.Spec.Linux.Resources.CPU = &specs.LinuxCPU{Cpus: "0-2", Shares: &shares}
		if _, err := p.Admit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got := p.wanted().VCPUs; got != test.want {
			t.Errorf("%s: the machine should have %d vCPUs, want %d", name, got, test.want)
		}
	}
}

// A machine of static size has no vCPUs for the CPUs of the pause container.
func TestStaticSizeWithoutPause(t *testing.T) {
	p, shares := newPod(t), uint64(2)
	p.opts.Hints = Hints{
		Annotations: map[string]string{"io.kubernetes.cri-o.PodLinuxResources": `{"cpu_shares":2}`},
		Limits:      &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0-2", Shares: &shares}},
	}
	if err := p.choose(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.initial.VCPUs != 1 {
		t.Errorf("%d vCPUs, want 1", p.initial.VCPUs)
	}
}
