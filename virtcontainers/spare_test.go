package virtcontainers_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// spareHost is a host whose sandboxes may adopt spare machines.
func spareHost(t *testing.T) (*fakeguest.Host, virtcontainers.Options) {
	t.Helper()
	host, opts, _ := templateHost(t)
	opts.Config.Factory.Template, opts.Config.Factory.VMs = false, 1
	opts.Config.Hypervisor.Memory.Reclaim = true // has a device
	return host, opts
}

// makeSpare makes a spare machine of a configuration, and returns its directory.
func makeSpare(t *testing.T, host *fakeguest.Host, opts virtcontainers.Options) (*virtcontainers.Spare, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "spare")
	spare, err := virtcontainers.MakeSpare(t.Context(), host.Platform(), "spare-1", opts.Config, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := spare.Close(context.Background()); err != nil {
			t.Error(err)
		}
		await(t, "the end of the spare's record", spare.Left())
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("the spare left %v, %v", left, err)
		}
	})
	return spare, dir
}

// newOn boots a sandbox that may adopt a spare machine.
func newOn(t *testing.T, host *fakeguest.Host, opts virtcontainers.Options, spare *virtcontainers.Spare) (*pod, error) {
	t.Helper()
	platform := host.Platform()
	platform.Spare = spare
	s, err := virtcontainers.New(t.Context(), platform, opts)
	return &pod{Sandbox: s, t: t, host: host}, err
}

// A spare's machine runs before there is a pod, with the share's device, and has run
// a container; then it is the pod's.
func TestSpare(t *testing.T) {
	host, opts := spareHost(t)
	spare, dir := makeSpare(t, host, opts)
	vm := host.VM()
	if !vm.Resumed() || host.Agent.Setup() != nil {
		t.Errorf("resumed: %v, setup %v", vm.Resumed(), host.Agent.Setup())
	}
	eventually(t, "the end of all connections but one", func() bool { return host.Agent.Connections() == 1 })
	if calls := host.Agent.Calls(); !slices.Contains(calls, "Delete warm-up") || host.Agent.Containers() != 0 {
		t.Errorf("the guest was not warmed up, or %d containers are left: %v", host.Agent.Containers(), calls)
	}
	bare := len(vm.Devices())
	records, err := persist.List(dir)
	if err != nil || len(records) != 1 || records[0].VM.PID != spare.PID() || !records[0].VM.Alive() {
		t.Fatalf("records %+v, %v", records, err)
	}
	p, err := newOn(t, host, opts, spare)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the adoption", spare.Left())
	rec, err := persist.Load(host.Platform().StateDir(), sandboxID)
	if err != nil || rec.VM != records[0].VM {
		t.Errorf("the pod's record names %+v, %v; want %+v", rec.VM, err, records[0].VM)
	}
	if n := len(host.Monitor.VMs()); n != 1 || len(vm.Devices()) != bare || host.Agent.Setup() == nil {
		t.Errorf("%d machines, devices %v of which %d are the spare's, setup %v", n, vm.Devices(), bare, host.Agent.Setup())
	}
	if prepared := host.Agent.Prepared(); prepared.GetIsTemplate() || len(prepared.GetEntropy()) != api.EntropyBytes {
		t.Errorf("the guest was prepared with %v: it is no template, and may be a copy of one", prepared)
	}
	// Together they are what a pod without a spare mounts (checkSetup).
	mounted := slices.Concat(host.Agent.Prepared().GetStorages(), host.Agent.Setup().GetStorages())
	if len(mounted) != 2 || mounted[0].GetTarget() != api.GuestSharedDir || mounted[1].GetTarget() != api.GuestShmDir {
		t.Errorf("the guest has mounted %v", mounted)
	}
	c := p.run(sandboxID)
	p.exits(sandboxID, "", 7)
	if status := statusOf(t, initOf(t, c)); status != 7 {
		t.Errorf("exit status %d", status)
	}
	p.awaitStopped()
	checkNothingLeft(t, host)
	// The next one boots: a machine is one pod's.
	again, err := newOn(t, host, opts, spare)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(host.Monitor.VMs()); n != 2 {
		t.Errorf("%d machines, want 2", n)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A sandbox with another machine boots, and the spare is ended.
func TestSpareThatDoesNotFit(t *testing.T) {
	for name, change := range map[string]func(*virtcontainers.Options){
		"memory":   func(o *virtcontainers.Options) { o.Config.Hypervisor.MemoryMiB = 512 },
		"entropy":  func(o *virtcontainers.Options) { o.Config.Hypervisor.EntropySource = "/dev/zero" },
		"balloon":  func(o *virtcontainers.Options) { o.Config.Hypervisor.Memory.Reclaim = false },
		"no pool":  func(o *virtcontainers.Options) { o.Config.Factory.VMs = 0 },
		"cache":    func(o *virtcontainers.Options) { o.Config.Hypervisor.VirtioFS.Cache = config.CacheNever },
		"no share": func(o *virtcontainers.Options) { o.Config.Hypervisor.SharedFS = config.SharedFSNone },
		"prealloc": func(o *virtcontainers.Options) { o.Config.Hypervisor.Memory.Prealloc = true },
	} {
		t.Run(name, func(t *testing.T) {
			host, opts := spareHost(t)
			spare, _ := makeSpare(t, host, opts)
			config := *opts.Config
			opts.Config = &config
			change(&opts)
			p, err := newOn(t, host, opts, spare)
			if err != nil {
				t.Fatal(err)
			}
			vms := host.Monitor.VMs()
			if len(vms) != 2 || vms[0].Err() == nil || vms[1].Err() != nil {
				t.Errorf("%d machines", len(vms))
			}
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A spare whose template is bad boots and has the template removed; one that does not
// boot either leaves it.
func TestSpareSuspectsTemplate(t *testing.T) {
	for name, failures := range map[string]int{"with the template": 1, "with and without": 2} {
		t.Run(name, func(t *testing.T) {
			host, opts := spareHost(t)
			opts.Config.Factory.Template, opts.Config.Hypervisor.Memory.Reclaim = true, false
			key, store := makeTemplate(t, host, opts), factory.Store{Dir: opts.Config.Factory.TemplatePath}
			left := failures
			host.Monitor.Hook(fake.StepLaunch, func(context.Context, *fake.VM) error {
				if left--; left >= 0 {
					return errInjected
				}
				return nil
			})
			if failures == 1 {
				makeSpare(t, host, opts)
				if _, err := store.Open(key); !errdefs.IsNotFound(err) {
					t.Errorf("the template afterwards: %v", err)
				}
				return
			}
			dir := filepath.Join(t.TempDir(), "spare")
			if _, err := virtcontainers.MakeSpare(t.Context(), host.Platform(), "spare-1", opts.Config, dir); err == nil {
				t.Error("there is a spare")
			}
			checkTemplateStays(t, store, key)
		})
	}
}

// A pod that wants no template does not get a machine that came from one.
func TestSpareOfTemplate(t *testing.T) {
	host, opts := spareHost(t)
	opts.Config.Factory.Template = true
	makeTemplate(t, host, opts)
	for _, wanted := range []bool{true, false} {
		before := len(host.Monitor.VMs())
		spare, _ := makeSpare(t, host, opts)
		if host.VM().Spec.Template == nil {
			t.Fatal("the spare did not come from the template")
		}
		config := *opts.Config
		config.Factory.Template = wanted
		changed := opts
		changed.Config = &config
		p, err := newOn(t, host, changed, spare)
		if err != nil {
			t.Fatal(err)
		}
		if adopted := len(host.Monitor.VMs()) == before+1; adopted != wanted {
			t.Errorf("template wanted: %v; adopted: %v", wanted, adopted)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// At whatever step the boot on a spare fails, the pod boots another machine, and
// nothing of the spare is left.
func TestBootOnSpareFails(t *testing.T) {
	for _, step := range virtcontainers.BootSteps() {
		t.Run(step, func(t *testing.T) {
			host, opts := spareHost(t)
			spare, _ := makeSpare(t, host, opts)
			platform := host.Platform()
			platform.Spare, platform.Failpoint = spare, step
			if _, err := virtcontainers.New(t.Context(), platform, opts); err == nil {
				t.Error("no error")
			}
			checkNothingLeft(t, host)
		})
	}
	host, opts := spareHost(t)
	spare, _ := makeSpare(t, host, opts)
	first := true
	host.Agent.Hook("SetupSandbox", func(context.Context, proto.Message) error {
		if first {
			first = false
			return errInjected
		}
		return nil
	})
	p, err := newOn(t, host, opts, spare)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(host.Monitor.VMs()); n != 2 {
		t.Errorf("%d machines, want the spare's and another", n)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A spare whose machine has died is not adopted.
func TestDeadSpare(t *testing.T) {
	host, opts := spareHost(t)
	spare, _ := makeSpare(t, host, opts)
	host.VM().Die(hypervisor.ErrPowerOff)
	await(t, "the end", spare.Done())
	p, err := newOn(t, host, opts, spare)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Nor is one whose guest answers no more: the pod boots in the time that it has.
func TestSilentSpare(t *testing.T) {
	host, opts := spareHost(t)
	opts.Config.Agent.DialTimeout = time.Second
	spare, _ := makeSpare(t, host, opts)
	if err := spare.Ping(t.Context()); err != nil {
		t.Errorf("a spare that answers: %v", err)
	}
	for _, call := range []string{"Hello", "SetupSandbox"} {
		host.Agent.Hook(call, func(ctx context.Context, _ proto.Message) error {
			if len(host.Monitor.VMs()) > 1 {
				return nil // the other machine's
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}
	if err := spare.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "did not answer within 1s") {
		t.Errorf("a spare that does not answer: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	platform := host.Platform()
	platform.Spare = spare
	s, err := virtcontainers.New(ctx, platform, opts)
	if err != nil {
		t.Fatal(err)
	}
	if vms := host.Monitor.VMs(); len(vms) != 2 || vms[0].Err() == nil {
		t.Errorf("%d machines, want the spare's, ended, and another", len(vms))
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	checkNothingLeft(t, host)
}

// Nor is one whose share's daemon has died, or was replaced on disk.
func TestSpareOfAnotherDaemon(t *testing.T) {
	installed := findDaemon()
	if installed == "" {
		t.Skip("virtiofsd is not installed")
	}
	program, err := os.ReadFile(installed)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*virtcontainers.Spare, string) error{
		"died": func(s *virtcontainers.Spare, _ string) error {
			err := syscall.Kill(s.Processes()[1], syscall.SIGKILL)
			await(t, "the end of the share", s.ShareDone())
			return err
		},
		"replaced": func(_ *virtcontainers.Spare, path string) error {
			return os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "virtiofsd")
			if err := os.WriteFile(path, program, 0o700); err != nil {
				t.Fatal(err)
			}
			host, opts := spareHost(t)
			opts.Config.Hypervisor.VirtioFS.Daemon = path
			spare, _ := makeSpare(t, host, opts)
			if err := change(spare, path); err != nil {
				t.Fatal(err)
			}
			p, err := newOn(t, host, opts, spare)
			if err != nil {
				t.Fatal(err)
			}
			if vms := host.Monitor.VMs(); len(vms) != 2 || vms[0].Err() == nil {
				t.Errorf("%d machines, want the spare's, ended, and another", len(vms))
			}
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			checkNothingLeft(t, host)
		})
	}
}

// A spare that cannot be made leaves nothing.
func TestMakeSpareFails(t *testing.T) {
	for _, step := range []string{"state", "share", "user", "vm", "vsock", "storage", "hardware", "resume", "agent", "warm-up"} {
		host, opts := spareHost(t)
		platform := host.Platform()
		platform.Failpoint = step
		dir := filepath.Join(t.TempDir(), "spare")
		if _, err := virtcontainers.MakeSpare(t.Context(), platform, "spare-1", opts.Config, dir); err == nil {
			t.Errorf("%s: no error", step)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", step, left, err)
		}
		checkNothingLeft(t, host)
	}
}

// An agent of another release, which cannot be prepared, is no reason to have no
// spare: its pod mounts all then.
func TestSpareOfOldAgent(t *testing.T) {
	host, opts := spareHost(t)
	host.Agent.Fail("Prepare", errdefs.ErrNotImplemented)
	spare, _ := makeSpare(t, host, opts)
	p, err := newOn(t, host, opts, spare)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(host.Monitor.VMs()); n != 1 {
		t.Errorf("%d machines", n)
	}
	checkSetup(t, host.Agent.Setup())
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A machine whose container fails, or whose agent hangs, is no spare.
func TestSpareIsNotWarmedUp(t *testing.T) {
	for _, call := range []string{"Prepare", "Create", fakeguest.Stream, "Start", "Wait", "Delete"} {
		for name, script := range map[string]func(*fakeguest.Agent){
			"fails": func(a *fakeguest.Agent) { a.Fail(call, errInjected) },
			"hangs": func(a *fakeguest.Agent) { a.Hang(call) },
		} {
			t.Run(call+" "+name, func(t *testing.T) {
				host, opts := spareHost(t)
				opts.Config.Agent.DialTimeout = 300 * time.Millisecond
				script(host.Agent)
				dir := filepath.Join(t.TempDir(), "spare")
				if _, err := virtcontainers.MakeSpare(t.Context(), host.Platform(), "spare-2", opts.Config, dir); err == nil {
					t.Error("no error")
				}
				if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
					t.Errorf("left %v, %v", left, err)
				}
				checkNothingLeft(t, host)
			})
		}
	}
}

// Without a share the container's files are copied into the guest.
func TestSpareWithoutShare(t *testing.T) {
	host, opts := spareHost(t)
	opts.Config.Hypervisor.SharedFS = config.SharedFSNone
	spare, _ := makeSpare(t, host, opts)
	if calls := host.Agent.Calls(); !slices.Contains(calls, "Delete warm-up") || !slices.Contains(calls, "ChangeFiles") {
		t.Errorf("calls %v", calls)
	}
	p, err := newOn(t, host, opts, spare)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(host.Monitor.VMs()); n != 1 {
		t.Errorf("%d machines", n)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// The pod has what its own configuration binds into the share, and its record names
// the share's daemon.
func TestSpareShare(t *testing.T) {
	for _, daemon := range []string{"", findDaemon()} {
		host, opts := spareHost(t)
		opts.Config.Hypervisor.VirtioFS.Daemon = daemon
		spare, _ := makeSpare(t, host, opts)
		config := *opts.Config
		opts.Config = &config
		config.Runtime.SandboxBindMounts = []string{t.TempDir()}
		p, err := newOn(t, host, opts, spare)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := persist.Load(host.Platform().StateDir(), sandboxID)
		if err != nil || rec.FSDaemon.Alive() != (daemon != "") || len(host.Monitor.VMs()) != 1 {
			t.Errorf("daemon %q: record %+v, %v, %d machines", daemon, rec, err, len(host.Monitor.VMs()))
		}
		p.run(sandboxID)
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		checkNothingLeft(t, host)

		config.Runtime.SandboxBindMounts = []string{"/missing"}
		spare, _ = makeSpare(t, host, opts)
		if _, err := newOn(t, host, opts, spare); err == nil || !strings.Contains(err.Error(), "sandbox_bind_mounts") {
			t.Errorf("a missing bind mount: %v", err)
		}
		checkNothingLeft(t, host)
	}
}

// A pod that ends soon after its start orders the spare when it has ended: making
// one takes CPU time.
func TestRefillOfAShortPod(t *testing.T) {
	host, opts := spareHost(t)
	opts.Config.Source = []string{"/etc/a.toml"}
	orders := make(chan virtcontainers.TemplateOrder, 10)
	platform := host.Platform()
	platform.RefillPause = time.Hour
	platform.StartSpare = func(o virtcontainers.TemplateOrder) error { orders <- o; return nil }
	s, err := virtcontainers.New(t.Context(), platform, opts)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{Sandbox: s, t: t, host: host}
	c := p.run(sandboxID)
	p.exits(sandboxID, "", 0)
	statusOf(t, initOf(t, c))
	if _, err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(orders) > 0 {
		t.Error("a spare is ordered while the pod ends")
	}
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := len(orders); n != 1 {
		t.Errorf("%d spares are ordered, want 1", n)
	}
}

// A pod orders a spare when its first container runs, if one is missing.
func TestRefill(t *testing.T) {
	host, opts := spareHost(t)
	opts.Config.Source = []string{"/etc/a.toml"}
	home, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	name, err := pool.NameOf("/engine", "/etc/a.toml", home)
	if err != nil {
		t.Fatal(err)
	}
	spares := virtcontainers.PoolDir(host.RunDir)
	orders := make(chan virtcontainers.TemplateOrder, 10)
	startErr := error(nil)
	run := func(started bool) {
		platform := host.Platform()
		platform.Owner.Address = "/engine"
		platform.StartSpare = func(o virtcontainers.TemplateOrder) error {
			orders <- o
			return startErr
		}
		s, err := virtcontainers.New(t.Context(), platform, opts)
		if err != nil {
			t.Fatal(err)
		}
		p := &pod{Sandbox: s, t: t, host: host}
		c := p.create(sandboxID)
		if len(orders) > 0 {
			t.Error("a spare is ordered before a container runs")
		}
		if started {
			p.start(initOf(t, c))
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	run(false)
	run(true)
	order := await(t, "the order", orders)
	if order.Config != "/etc/a.toml" || order.Engine != "/engine" || string(order.Home) != string(home) {
		t.Errorf("ordered %+v", order)
	}
	startErr = errInjected
	run(true)
	await(t, "the second order", orders)

	store := factory.Store{Dir: opts.Config.Factory.TemplatePath}
	lock, err := store.Lock()
	if err != nil {
		t.Fatal(err)
	}
	run(true) // another process makes one
	attempt, err := store.Begin(factory.Key(name))
	if err := errors.Join(err, lock.Close(), attempt.Failed(errInjected)); err != nil {
		t.Fatal(err)
	}
	run(true) // it failed just now
	if err := attempt.Succeeded(); err != nil {
		t.Fatal(err)
	}
	entry, err := spares.Add("1", pool.Info{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	l, err := entry.Offer()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run(true) // there is one
	if n := len(orders); n != 0 {
		t.Errorf("%d too many are ordered", n)
	}
	if err := entry.Remove(); err != nil {
		t.Error(err)
	}
}

// The record of a pod stays if its machine, which was a spare's, has not ended.
func TestAdoptedMachineStays(t *testing.T) {
	host, opts := spareHost(t)
	spare, _ := makeSpare(t, host, opts)
	p, err := newOn(t, host, opts, spare)
	if err != nil {
		t.Fatal(err)
	}
	host.Monitor.Fail(fake.StepStop, errInjected)
	err = p.Stop(t.Context())
	if !errors.Is(err, errInjected) || strings.Count(err.Error(), "has not ended") != 1 {
		t.Errorf("Stop: %v", err)
	}
	host.VM().Die(errDied)
	removeMarked(t, host)
}

// A pod whose spare machine fails, and has not ended, does not boot another one: its record
// would replace that machine's.
func TestFailedSpareMachineStays(t *testing.T) {
	host, opts := spareHost(t)
	spare, _ := makeSpare(t, host, opts)
	host.Agent.Fail("SetupSandbox", errInjected)
	host.Monitor.Fail(fake.StepStop, errInjected)
	if _, err := newOn(t, host, opts, spare); !errors.Is(err, errInjected) || strings.Count(err.Error(), "has not ended") != 1 {
		t.Errorf("got %v", err)
	}
	if n := len(host.Monitor.VMs()); n != 1 {
		t.Errorf("%d machines, want the spare's", n)
	}
	host.VM().Die(errDied)
	removeMarked(t, host)
}
