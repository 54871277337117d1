package virtcontainers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/sizing"
)

// sized is the configuration of a machine that may have up to four vCPUs.
func sized(static bool) virtcontainers.Options {
	opts := options(newObserver())
	opts.Config = fakeguest.Config()
	opts.Config.Hypervisor.MaxVCPUs, opts.Config.Hypervisor.DefaultVCPUs = 4, 0.5
	opts.Config.Runtime.StaticSizing = static
	return opts
}

func limits(quota, memory int64) *specs.LinuxResources {
	period := uint64(100_000)
	return &specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
		Memory: &specs.LinuxMemory{Limit: &memory},
	}
}

func TestStaticSize(t *testing.T) {
	const cri = "io.kubernetes.cri.sandbox-"
	pod := map[string]string{cri + "cpu-quota": "150000", cri + "cpu-period": "100000", cri + "memory": "104857600"}
	crio := map[string]string{"io.kubernetes.cri-o.PodLinuxResources": `{"cpu_period":100000,"cpu_quota":150000,"memory_limit_in_bytes":104857600}`}
	shares := uint64(1536)
	requests := limits(0, 104857600)
	requests.CPU.Shares = &shares
	tests := []struct {
		name      string
		static    bool
		size      sizing.Hints
		vcpus     uint32
		memoryMiB uint64
	}{
		{"nothing is said", true, sizing.Hints{}, 1, 256},
		{"a pod", true, sizing.Hints{Annotations: pod, Limits: &specs.LinuxResources{}}, 2, 384},
		{"a pod of CRI-O", true, sizing.Hints{Annotations: crio}, 2, 384},
		{"a pod without a pause container", true, sizing.Hints{Pod: requests}, 2, 384},
		{"a single container", true, sizing.Hints{Limits: limits(260_000, 129<<20)}, 4, 512},
		{"more than there can be", true, sizing.Hints{Limits: limits(900_000, 1)}, 4, 384},
		{"not static", false, sizing.Hints{Annotations: pod, Limits: limits(1, 1)}, 1, 256},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			host := newHost(t)
			opts := sized(test.static)
			opts.Size = test.size
			s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
			if err != nil {
				t.Fatal(err)
			}
			most := test.vcpus
			if !test.static {
				most = 4
			}
			if got := host.VM().Spec; got.VCPUs != test.vcpus || got.MaxVCPUs != most || got.MemoryMiB != test.memoryMiB {
				t.Errorf("a machine of %d vCPUs, up to %d, and %d MiB, want %d, %d and %d",
					got.VCPUs, got.MaxVCPUs, got.MemoryMiB, test.vcpus, most, test.memoryMiB)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnreadableSize(t *testing.T) {
	host := newHost(t)
	for text, size := range map[string]sizing.Hints{
		`"much"`:                     {Annotations: map[string]string{"io.kubernetes.cri.sandbox-memory": "much"}},
		`PodLinuxResources = "much"`: {Annotations: map[string]string{"io.kubernetes.cri-o.PodLinuxResources": "much"}},
		`"many"`:                     {Limits: &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "many"}}},
	} {
		opts := sized(true)
		opts.Size = size
		_, err := virtcontainers.New(t.Context(), host.Platform(), opts)
		wantError(t, "size that cannot be read", err, errdefs.IsInvalidArgument, text)
	}
}

// growing is a machine in memory whose size can change. Its methods must be
// called by one goroutine at a time; its fields are unguarded so that the race
// detector checks that.
type growing struct {
	hypervisor.VM
	vcpus     uint32
	memoryMiB uint64

	mu sync.Mutex // guards what follows
	// asked lists the requests to it, and its reports.
	asked []string
	// stuck keeps it from becoming smaller, full from becoming larger.
	stuck, full bool
	changed     chan struct{}
}

func (g *growing) note(what string, n any) (stuck, full bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, fmt.Sprintf("%s %d", what, n))
	close(g.changed)
	g.changed = make(chan struct{})
	return g.stuck, g.full
}

func (g *growing) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// take waits until the requests since the last take are those wanted, and
// removes them.
func (g *growing) take(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		g.mu.Lock()
		changed, asked := g.changed, g.asked
		if len(asked) >= len(want) {
			g.asked = nil
		}
		g.mu.Unlock()
		if len(asked) >= len(want) {
			if diff := cmp.Diff(want, asked, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("asked of the machine (-want +got):\n%s", diff)
			}
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("asked of the machine: %v, want %v", asked, want)
		}
	}
}

// await waits until the machine was asked for want since the last take.
func (g *growing) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		g.mu.Lock()
		changed, asked := g.changed, g.asked
		g.mu.Unlock()
		if slices.Contains(asked, want) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("asked of the machine: %v, want %q", asked, want)
		}
	}
}

// takeOnly checks that all requests since the last take are among may.
func (g *growing) takeOnly(t *testing.T, may ...string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, asked := range g.asked {
		if !slices.Contains(may, asked) {
			t.Errorf("asked of the machine: %q, want nothing but %q", asked, may)
		}
	}
	g.asked = nil
}

func (g *growing) SetVCPUs(_ context.Context, n uint32) (uint32, error) {
	if stuck, full := g.note("vcpus", n); full && n > g.vcpus || stuck && n < g.vcpus {
		return g.vcpus, nil
	}
	g.vcpus = n
	return n, nil
}

func (g *growing) SetMemoryMiB(_ context.Context, n, _ uint64) (uint64, error) {
	if stuck, full := g.note("memory", n); full && n > g.memoryMiB || stuck && n < g.memoryMiB {
		return g.memoryMiB, nil
	}
	g.memoryMiB = n
	return n, nil
}

type growingMonitor struct {
	hypervisor.Monitor
	vm *growing
}

func (m *growingMonitor) Launch(ctx context.Context, spec hypervisor.Spec) (hypervisor.VM, error) {
	vm, err := m.Monitor.Launch(ctx, spec)
	m.vm = &growing{VM: vm, vcpus: spec.VCPUs, memoryMiB: spec.MemoryMiB, changed: make(chan struct{})}
	return m.vm, err
}

// growingPod boots a pod whose machine can grow.
func growingPod(t *testing.T, virtioMem bool) (*pod, *growing) {
	t.Helper()
	return growingPodTo(t, virtioMem, 1024)
}

// growingPodTo boots one with another maximum of its memory.
func growingPodTo(t *testing.T, virtioMem bool, maxMiB uint64) (*pod, *growing) {
	t.Helper()
	host := newHost(t)
	platform, opts := host.Platform(), sized(false)
	monitor := &growingMonitor{Monitor: platform.Monitor}
	platform.Monitor = monitor
	opts.Config.Hypervisor.MaxMemoryMiB, opts.Config.Hypervisor.VirtioMem = maxMiB, virtioMem
	p := &pod{t: t, host: host, observer: newObserver()}
	opts.Observer = p.observer
	var err error
	if p.Sandbox, err = virtcontainers.New(t.Context(), platform, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, monitor.vm
}

// limited makes a container with limits: a quota of 100 ms, and bytes.
func (p *pod) limited(id string, quota, memory int64) (*virtcontainers.Container, error) {
	p.t.Helper()
	opts := p.options(id, nil)
	opts.Bundle.Spec.Linux.Resources = limits(quota, memory)
	return p.Create(p.t.Context(), opts, ignore)
}

func encoded(t *testing.T, r *specs.LinuxResources) *anypb.Any {
	t.Helper()
	value, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{Value: value}
}

func TestDynamicSize(t *testing.T) {
	for _, virtio := range []bool{false, true} {
		t.Run(fmt.Sprintf("virtio-mem=%v", virtio), func(t *testing.T) {
			p, vm := growingPod(t, virtio)
			spec := p.host.VM().Spec
			if spec.VCPUs != 1 || spec.MaxVCPUs != 4 || spec.MemoryMiB != 256 || spec.MaxMemoryMiB != 1024 ||
				(spec.MemoryModel == hypervisor.MemoryVirtio) != virtio {
				t.Errorf("machine: %+v", spec)
			}
			p.create(sandboxID)
			vm.take(t)
			a, err := p.limited("a", 50_000, 1) // with the machine's half: one vCPU
			if err != nil {
				t.Fatal(err)
			}
			vm.take(t, "memory 384")
			if _, err := p.limited("b", 100_000, 128<<20); err != nil {
				t.Fatal(err)
			}
			vm.take(t, "memory 512", "vcpus 2")
			if got := p.host.Agent.Resources(); got.GetCpus() != 2 || got.GetMemoryMib() != 512 {
				t.Errorf("the guest was told of %v", got)
			}
			if err := a.Update(t.Context(), encoded(t, limits(150_000, 128<<20))); err != nil {
				t.Error(err)
			}
			vm.take(t, "vcpus 3")
			if err := a.Update(t.Context(), encoded(t, limits(-1, 0))); err != nil {
				t.Error(err)
			}
			vm.take(t, "vcpus 2")
			p.exits("b", "", 0)
			want := []string{"vcpus 1"}
			if virtio {
				want = append(want, "memory 384")
			}
			vm.take(t, want...)
		})
	}
}

// A machine that becomes much larger grows in steps: the guest uses the memory of one
// before there is more. With virtio-mem it takes small parts anyway.
func TestLargeGrowth(t *testing.T) {
	for virtio, want := range map[bool][]string{
		false: {"memory 4352", "guest 4352", "memory 33024", "guest 33024"},
		true:  {"memory 33024"},
	} {
		p, vm := growingPodTo(t, virtio, 1<<20)
		if !virtio {
			p.host.Agent.Hook("SetResources", func(_ context.Context, req proto.Message) error {
				vm.note("guest", req.(*api.SetResourcesRequest).GetMemoryMib())
				return nil
			})
		}
		p.create(sandboxID)
		if _, err := p.limited("a", 1, 32<<30); err != nil {
			t.Fatal(err)
		}
		vm.take(t, want...)
	}
}

// If the machine cannot grow, the create fails and leaves no container; what it
// could not give back is used again.
func TestSizeThatCannotChange(t *testing.T) {
	p, vm := growingPod(t, true)
	p.create(sandboxID)
	vm.set(func() { vm.full = true })
	_, err := p.limited("a", 100_000, 1)
	wantError(t, "a machine that is full", err, errdefs.IsResourceExhausted, "size: grow the machine from 1 vCPUs and 256 MiB to 2 and 384")
	if _, err := p.Container("a"); !errdefs.IsNotFound(err) {
		t.Errorf("a container without room: %v", err)
	}
	vm.take(t, "memory 384")
	vm.set(func() { vm.full, vm.stuck = false, true })
	a, err := p.limited("a", 100_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	vm.take(t, "memory 384", "vcpus 2")
	vm.set(func() { vm.full = true })
	err = a.Update(t.Context(), encoded(t, limits(900_000, 1)))
	wantError(t, "an update that the machine cannot follow", err, errdefs.IsResourceExhausted, "to 4 and 384")
	vm.take(t, "vcpus 4")
	p.exits("a", "", 0)
	// The failed update and the exit each try to shrink the machine, so a stuck
	// one may be asked twice. For b it is asked for the vCPUs again, which it may
	// have released meanwhile; the memory is as large as it said.
	vm.await(t, "memory 256")
	if _, err := p.limited("b", 100_000, 1); err != nil {
		t.Errorf("what is left is not used: %v", err)
	}
	vm.await(t, "vcpus 2")
	vm.takeOnly(t, "vcpus 1", "memory 256", "vcpus 2")
}

// If the guest does not use what it is given, the create fails and the machine
// shrinks back.
func TestSizeThatTheGuestDoesNotTake(t *testing.T) {
	p, vm := growingPod(t, false)
	p.create(sandboxID)
	p.host.Agent.Fail("SetResources", errInjected)
	_, err := p.limited("a", 100_000, 0)
	wantError(t, "a guest that fails", err, func(err error) bool { return err != nil }, "injected")
	vm.take(t, "vcpus 2", "vcpus 1")
	// Memory modules stay, and are used the next time.
	_, err = p.limited("b", -1, 1)
	wantError(t, "a guest that fails", err, func(err error) bool { return err != nil }, "injected")
	p.host.Agent.Fail("SetResources", nil)
	if _, err := p.limited("b", -1, 1); err != nil {
		t.Error(err)
	}
	vm.take(t, "memory 384")
	if got := p.host.Agent.Resources(); got.GetMemoryMib() != 384 {
		t.Errorf("the guest was told of %v", got)
	}
}
