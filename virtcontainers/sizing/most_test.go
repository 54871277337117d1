package sizing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// modular is a machine with memory modules, whose later ones are as large as all
// before them together, as QEMU's are.
type modular struct {
	running
	modules int
}

func (m *modular) SetMemoryMiB(ctx context.Context, n, most uint64) (uint64, error) {
	vm := m.VM.(*fake.VM)
	if _, now := vm.Size(); n > now {
		if m.modules++; m.modules > 4 {
			n = max(n, min(most, 2*now-vm.Spec.MemoryMiB))
		}
	}
	return vm.SetMemoryMiB(ctx, n, most)
}

// chargedPod returns a pod that has a cgroup on the host and a machine of 2048 MiB with
// memory modules; path is Options.CgroupsPath.
func chargedPod(t *testing.T, path string) (*Pod, *fake.VM) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("makes cgroups, which needs root")
	}
	c := new(config.Config)
	c.Hypervisor.VCPUs, c.Hypervisor.MaxVCPUs, c.Hypervisor.MemoryMiB, c.Hypervisor.MaxMemoryMiB = 1, 4, 2048, 1<<20
	p, err := New(t.Context(), Options{
		SandboxID: "pod", CgroupsPath: path, Config: c, Accel: hypervisor.AccelKVM, Ending: func() bool { return false },
		WhileAlive: context.WithCancel,
		EnterAwake: func(context.Context) (func(), error) { return func() {}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	made, err := hostcgroup.New(hostcgroup.Options{Path: path, Name: fmt.Sprintf("kbtest-most-%d", os.Getpid())})
	if err == nil {
		err = made.Make()
	}
	if err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(made.Release(), made.Remove(context.Background())); err != nil {
			t.Error(err)
		}
	})
	entered := make(chan struct{})
	close(entered)
	p.cgroup = &cgroup{Cgroup: made, entered: entered}
	vm, err := new(fake.Monitor).Launch(t.Context(), hypervisor.Spec{
		ID: "pod", VCPUs: 1, MaxVCPUs: 4, MemoryMiB: p.initial.MemoryMiB, MaxMemoryMiB: 1 << 20, MemoryModel: hypervisor.MemoryDIMM,
	})
	if err == nil {
		err = vm.Resume(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := process(t)
	if err := p.Account(t.Context(), &modular{running: running{vm, pid}}, 0); err != nil {
		t.Fatal(err)
	}
	p.Connect(obliging{vm.(*fake.VM)})
	return p, vm.(*fake.VM)
}

// A pod may use what its machine has, also what a memory module has beyond the
// request.
func TestBoundFollowsModules(t *testing.T) {
	p, vm := chargedPod(t, "")
	admit := func(id string) {
		t.Helper()
		if _, err := p.Admit(t.Context(), container(id, 1<<30)); err != nil {
			t.Fatal(err)
		}
		_, has := vm.Size()
		if bound := p.bounded >> 20; bound < has+vmOverheadMiB {
			t.Errorf("with container %s the machine has %d MiB, the bound is %d MiB", id, has, bound)
		}
	}
	for i := range 8 {
		admit(fmt.Sprint(i))
	}
	if _, has := vm.Size(); has != 10240 {
		t.Errorf("the machine has %d MiB, want 10240", has)
	}
	p.bounded, p.chargedMiB = 1, 0 // as after an error
	p.Release("7")
	admit("8")
}

// The modules of a saved machine are filled when it is loaded, before its container is
// admitted.
func TestBoundCoversSavedModules(t *testing.T) {
	p, vm := chargedPod(t, "")
	if err := p.Continue(hypervisor.Layout{ModulesMiB: []uint64{4096, 1024}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Account(t.Context(), p.vm, 0); err != nil {
		t.Fatal(err)
	}
	if bound := p.bounded >> 20; bound < 2048+5120+vmOverheadMiB {
		t.Errorf("a machine of 2048 MiB with modules of 5120 MiB has a bound of %d MiB", bound)
	}
	// The guest is asked to use them, once.
	if _, err := vm.SetMemoryMiB(t.Context(), 7168, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Admit(t.Context(), container("c1", 5<<30)); err != nil || p.memoryMiB != 7168 || p.unused {
		t.Errorf("%v: it has %d MiB, unused %v", err, p.memoryMiB, p.unused)
	}
}

// A machine does not get more at once than its pod may ever use, nor so much that it no
// longer fits into the pod's limit on the host.
func TestModulesStayWithinThePod(t *testing.T) {
	limited := limitedCgroup(t, 8000)
	for what, test := range map[string]struct {
		path, said string
		only       bool
		want, most uint64
	}{
		"nothing is known":            {want: 4096, most: 1 << 20},
		"all containers are known":    {said: fmt.Sprint(4 << 30), want: 4096, most: 6144},
		"more than all are known":     {said: fmt.Sprint(1 << 30), want: 4096, most: 1 << 20},
		"the host limits the pod":     {path: limited, want: 4096, most: 8000 - 256},
		"the machine does not fit":    {path: limited, want: 8192, most: 1 << 20},
		"it does not fit, but has to": {path: limited, only: true, want: 8192, most: 1 << 20},
	} {
		t.Run(what, func(t *testing.T) {
			p, _ := chargedPod(t, test.path)
			p.opts.Config.Runtime.SandboxCgroupOnly = test.only
			if test.said != "" {
				var err error
				if p.whole, err = resource.OfAnnotations(map[string]string{"io.kubernetes.cri.sandbox-memory": test.said}); err != nil {
					t.Fatal(err)
				}
			}
			if got := p.growableMiB(t.Context(), test.want); got != test.most {
				t.Errorf("for %d MiB the machine may get %d, want %d", test.want, got, test.most)
			}
		})
	}
}

// boastful is the machine of a compromised VMM, which says that it has any amount of
// memory and CPUs.
type boastful struct{ running }

func (boastful) SetMemoryMiB(context.Context, uint64, uint64) (uint64, error) { return 1 << 40, nil }
func (boastful) SetVCPUs(context.Context, uint32) (uint32, error)             { return 1 << 30, nil }

// The bound of the pod's cgroup does not follow what a compromised VMM says.
func TestBoundOfBoastfulVMM(t *testing.T) {
	p, _ := chargedPod(t, "")
	p.vm = boastful{p.vm.(*modular).running}
	if _, err := p.Admit(t.Context(), container("c", 1<<30)); err != nil {
		t.Log(err)
	}
	if p.memoryMiB > 4096 || p.vcpus > 4 {
		t.Errorf("the machine has %d MiB and %d vCPUs", p.memoryMiB, p.vcpus)
	}
	if bound := p.bounded >> 20; bound > 8192 {
		t.Errorf("the bound is %d MiB", bound)
	}
}
