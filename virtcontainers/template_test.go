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

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// templateHost is a host with a template, and options of sandboxes for it.
func templateHost(t *testing.T) (*fakeguest.Host, virtcontainers.Options, factory.Store) {
	t.Helper()
	host := newHost(t)
	opts := options(newObserver())
	h := &opts.Config.Hypervisor
	for name, path := range map[string]*string{"qemu": &h.Path, "vmlinux": &h.Kernel, "initrd": &h.Initrd} {
		*path = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(*path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.EntropySource = "/dev/urandom"
	opts.Config.Factory.Template, opts.Config.Factory.TemplatePath = true, filepath.Join(t.TempDir(), "templates")
	return host, opts, factory.Store{Dir: opts.Config.Factory.TemplatePath}
}

// makeTemplate makes a template and checks that only it is left.
func makeTemplate(t *testing.T, host *fakeguest.Host, opts virtcontainers.Options) factory.Key {
	t.Helper()
	key, err := virtcontainers.MakeTemplate(t.Context(), host.Platform(), opts.Config, virtcontainers.TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, host)
	return key
}

// fromTemplate boots a sandbox, and reports whether the machine came from a
// template; then it stops it.
func fromTemplate(t *testing.T, host *fakeguest.Host, opts virtcontainers.Options) bool {
	t.Helper()
	s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err != nil {
		t.Fatal(err)
	}
	vm := host.VM()
	rngs := 0
	for _, d := range vm.Devices() {
		if _, ok := d.(hypervisor.RNG); ok {
			rngs++
		}
	}
	if rngs != 1 {
		t.Errorf("the machine has %d random number generators", rngs)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	checkNothingLeft(t, host)
	return vm.Spec.Template != nil
}

func TestMakeTemplate(t *testing.T) {
	host, opts, store := templateHost(t)
	var steps []string
	key, err := virtcontainers.MakeTemplate(t.Context(), host.Platform(), opts.Config, virtcontainers.TemplateOptions{Progress: func(s string) { steps = append(steps, s) }})
	if err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, host)
	if got, want := strings.Join(steps, " "), "state user vm hardware vsock resume agent warm-up save"; got != want {
		t.Errorf("steps %q, want %q", got, want)
	}
	if got := strings.Join(host.VM().Detached(), " "); got != "vsock0" {
		t.Errorf("detached %q before the machine was saved", got)
	}
	if host.Agent.Setup() != nil {
		t.Error("the template's guest was told of a pod")
	}
	if calls := host.Agent.Calls(); !slices.Contains(calls, "Delete warm-up") {
		t.Errorf("the guest was not warmed up: %v", calls)
	}
	if p := host.Agent.Prepared(); len(p.GetStorages()) != 0 || !p.GetIsTemplate() || len(p.GetEntropy()) != 0 {
		t.Errorf("the guest was prepared with %v", p)
	}
	for i := range 2 {
		if !fromTemplate(t, host, opts) {
			t.Errorf("sandbox %d did not come from the template", i)
		}
	}
	again := makeTemplate(t, host, opts)
	if n := len(host.Monitor.VMs()); again != key || n != 3 {
		t.Errorf("made %s with %d machines so far, want %s and 3", again, n, key)
	}
	if list, err := store.List(); err != nil || len(list) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
}

// A template that cannot be made leaves nothing.
func TestMakeTemplateFails(t *testing.T) {
	for name, tt := range map[string]struct {
		arrange func(*fakeguest.Host, *virtcontainers.Options)
		want    string
	}{
		"launch":  {func(h *fakeguest.Host, _ *virtcontainers.Options) { h.Monitor.Fail(fake.StepLaunch, errInjected) }, "vm: "},
		"detach":  {func(h *fakeguest.Host, _ *virtcontainers.Options) { h.Monitor.Fail(fake.StepDetach, errInjected) }, "save: "},
		"save":    {func(h *fakeguest.Host, _ *virtcontainers.Options) { h.Monitor.Fail(fake.StepSave, errInjected) }, "save: "},
		"agent":   {func(h *fakeguest.Host, _ *virtcontainers.Options) { h.Agent.Fail("Hello", errInjected) }, "agent: "},
		"warm-up": {func(h *fakeguest.Host, _ *virtcontainers.Options) { h.Agent.Fail("Start", errInjected) }, "warm-up: "},
		"agent hangs": {func(h *fakeguest.Host, o *virtcontainers.Options) {
			h.Agent.Hang("Prepare")
			o.Config.Agent.DialTimeout = 300 * time.Millisecond
		}, "warm-up: "},
		"huge pages": {func(_ *fakeguest.Host, o *virtcontainers.Options) { o.Config.Hypervisor.Memory.Prealloc = true },
			"have no templates"},
		"no entropy": {func(_ *fakeguest.Host, o *virtcontainers.Options) { o.Config.Hypervisor.EntropySource = "" },
			"have no templates"},
		"no kernel": {func(_ *fakeguest.Host, o *virtcontainers.Options) { o.Config.Hypervisor.Kernel = "/nonexistent" },
			"/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			host, opts, store := templateHost(t)
			tt.arrange(host, &opts)
			_, err := virtcontainers.MakeTemplate(t.Context(), host.Platform(), opts.Config, virtcontainers.TemplateOptions{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("make: %v, want %q", err, tt.want)
			}
			entries, err := os.ReadDir(store.Dir)
			if err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
			for _, e := range entries {
				if e.Name() != "lock" && !strings.HasPrefix(e.Name(), "failed-") { // the reason
					t.Errorf("left: %s", e.Name())
				}
			}
		})
	}
}

// A sandbox removes a template that nothing has used for a day, once its container
// runs, but not its own.
func TestTemplateExpires(t *testing.T) {
	host, opts, store := templateHost(t)
	own := makeTemplate(t, host, opts)
	other := *opts.Config
	other.Source, other.Hypervisor.KernelParams = []string{"/other.toml"}, "x=1"
	unused := makeTemplate(t, host, virtcontainers.Options{Config: &other, Observer: opts.Observer})
	then := time.Now().Add(-25 * time.Hour)
	for _, key := range []factory.Key{own, unused} {
		if err := os.Chtimes(filepath.Join(store.Dir, string(key), "template.json"), then, then); err != nil {
			t.Fatal(err)
		}
	}
	s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{Sandbox: s, t: t, host: host}
	c := p.create(sandboxID)
	if list, err := store.List(); err != nil || len(list) != 2 {
		t.Errorf("before a container runs: %+v, %v", list, err)
	}
	p.start(initOf(t, c))
	eventually(t, "one template", func() bool {
		list, err := store.List()
		return err == nil && len(list) == 1 && list[0].Key == own
	})
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	checkNothingLeft(t, host)
}

// A sandbox that fits no template boots, and leaves the templates alone.
func TestOtherMachineBoots(t *testing.T) {
	for name, change := range map[string]func(*virtcontainers.Options){
		"off":        func(o *virtcontainers.Options) { o.Config.Factory.Template = false },
		"memory":     func(o *virtcontainers.Options) { o.Config.Hypervisor.MemoryMiB = 512 },
		"parameters": func(o *virtcontainers.Options) { o.Config.Hypervisor.KernelParams = "x=1" },
		"prealloc":   func(o *virtcontainers.Options) { o.Config.Hypervisor.Memory.Prealloc = true },
		"directory":  func(o *virtcontainers.Options) { o.Config.Factory.TemplatePath += "2" },
	} {
		t.Run(name, func(t *testing.T) {
			host, opts, store := templateHost(t)
			key := makeTemplate(t, host, opts)
			change(&opts)
			if fromTemplate(t, host, opts) {
				t.Error("the sandbox came from a template that does not fit")
			}
			tpl, err := store.Open(key)
			if err != nil {
				t.Fatal(err)
			}
			_ = tpl.Close()
		})
	}
}

// A sandbox whose template is bad boots, and the template is removed; after a
// failure for another reason it stays.
func TestBadTemplateBoots(t *testing.T) {
	// once makes the first machine from a template fail.
	once := func(h *fakeguest.Host, step fake.Step) {
		h.Monitor.Hook(step, func(_ context.Context, vm *fake.VM) error {
			if vm != nil && vm.Spec.Template != nil {
				return errInjected
			}
			return nil
		})
	}
	for name, tt := range map[string]struct {
		arrange func(*testing.T, *fakeguest.Host, string)
		stays   bool
	}{
		"state damaged": {func(t *testing.T, _ *fakeguest.Host, dir string) {
			t.Helper()
			path := filepath.Join(dir, factory.StateFile)
			if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}, false},
		"vsock":  {func(_ *testing.T, h *fakeguest.Host, _ string) { once(h, fake.AttachStep(hypervisor.VhostVsock{})) }, false},
		"share":  {func(_ *testing.T, h *fakeguest.Host, _ string) { once(h, fake.AttachStep(hypervisor.FSShare{})) }, true},
		"resume": {func(_ *testing.T, h *fakeguest.Host, _ string) { once(h, fake.StepResume) }, false},
		"dies": {func(_ *testing.T, h *fakeguest.Host, _ string) {
			h.Agent.Hook(fakeguest.Dial+" 1024", func(context.Context, proto.Message) error {
				if vm := h.VM(); vm.Spec.Template != nil {
					vm.Die(hypervisor.ErrPowerOff)
					return syscall.ECONNREFUSED
				}
				return nil
			})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			host, opts, store := templateHost(t)
			key := makeTemplate(t, host, opts)
			tt.arrange(t, host, filepath.Join(store.Dir, string(key)))
			if fromTemplate(t, host, opts) {
				t.Error("the sandbox came from a bad template")
			}
			tpl, err := store.Open(key)
			if err == nil {
				_ = tpl.Close()
			}
			if (err == nil) != tt.stays || err != nil && !errdefs.IsNotFound(err) {
				t.Errorf("the template afterwards: %v", err)
			}
		})
	}
}

// A machine that cannot be launched from a template is launched without it.
func TestLaunchWithoutTemplate(t *testing.T) {
	host, opts, store := templateHost(t)
	key := makeTemplate(t, host, opts)
	first := true
	host.Monitor.Hook(fake.StepLaunch, func(context.Context, *fake.VM) error {
		if first {
			first = false
			return errInjected
		}
		return nil
	})
	if fromTemplate(t, host, opts) {
		t.Error("the sandbox came from a template with which QEMU does not start")
	}
	if _, err := store.Open(key); !errdefs.IsNotFound(err) {
		t.Errorf("the template afterwards: %v", err)
	}
}

// A boot that fails with and without a template says why, leaves nothing, and does
// not take the template from other pods: the fault is the pod's or the host's.
func TestBootFailsTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		fail     func(*fakeguest.Host)
		machines int // with the template's
	}{
		"launch": {func(h *fakeguest.Host) { h.Monitor.Fail(fake.StepLaunch, errInjected) }, 1},
		"vsock":  {func(h *fakeguest.Host) { h.Monitor.Fail(fake.AttachStep(hypervisor.VhostVsock{}), errInjected) }, 3},
		"resume": {func(h *fakeguest.Host) { h.Monitor.Fail(fake.StepResume, errInjected) }, 3},
		"agent":  {func(h *fakeguest.Host) { h.Agent.Fail("Hello", errInjected) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			host, opts, store := templateHost(t)
			key := makeTemplate(t, host, opts)
			tt.fail(host)
			if _, err := virtcontainers.New(t.Context(), host.Platform(), opts); err == nil || !strings.Contains(err.Error(), errInjected.Error()) {
				t.Errorf("boot: %v", err)
			}
			checkNothingLeft(t, host)
			if n := len(host.Monitor.VMs()); n != tt.machines {
				t.Errorf("%d machines, want %d", n, tt.machines)
			}
			checkTemplateStays(t, store, key)
		})
	}
}

// A template that is suspected because of one step stays if the boot without it fails
// in a later one.
func TestBootFailsWithoutTemplate(t *testing.T) {
	host, opts, store := templateHost(t)
	key := makeTemplate(t, host, opts)
	if err := os.Truncate(filepath.Join(store.Dir, string(key), factory.StateFile), 0); err != nil {
		t.Fatal(err)
	}
	host.Agent.Fail("SetupSandbox", errInjected)
	if _, err := virtcontainers.New(t.Context(), host.Platform(), opts); err == nil {
		t.Error("the guest has booted")
	}
	if list, err := store.List(); err != nil || len(list) != 1 {
		t.Errorf("templates: %+v, %v", list, err)
	}
	host.Agent.Fail("SetupSandbox", nil)
	if fromTemplate(t, host, opts) {
		t.Error("the sandbox came from a bad template")
	}
	if f, failed := store.Failure(key); !failed || f.Times != 1 {
		t.Errorf("failure %+v, want one", f)
	}
}

// checkTemplateStays checks that pods can start from a template, and would have it
// made at once if it were missing.
func checkTemplateStays(t *testing.T, store factory.Store, key factory.Key) {
	t.Helper()
	tpl, err := store.Open(key)
	if err != nil {
		t.Errorf("the template afterwards: %v", err)
	} else {
		_ = tpl.Close()
	}
	if f, failed := store.Failure(key); failed {
		t.Errorf("a failure of the template is remembered: %v", f)
	}
}
