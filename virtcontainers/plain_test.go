package virtcontainers_test

import (
	"context"
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// larger has a configuration's pods grow, and this one's annotations want two vCPUs
// and 1 GiB.
func larger(c *config.Config) {
	h := &c.Hypervisor
	h.MaxVCPUs, h.MaxMemoryMiB, h.MemorySlots = 4, 4096, 10
	plain := *c
	c.Plain = &plain
	h.VCPUs, h.MemoryMiB = 2, 1024
}

// largerHost is a host for templates, and options of a larger sandbox.
func largerHost(t *testing.T) (*fakeguest.Host, virtcontainers.Options, factory.Store) {
	t.Helper()
	host, opts, store := templateHost(t)
	larger(opts.Config)
	return host, opts, store
}

// plainOf are the options without annotations.
func plainOf(opts virtcontainers.Options) virtcontainers.Options {
	opts.Config = opts.Config.Plain
	return opts
}

// checkSize checks with which size the last machine started, and, unless it is 0,
// which memory it has been given.
func checkSize(t *testing.T, host *fakeguest.Host, vcpus uint32, mib, grown uint64) {
	t.Helper()
	spec := host.VM().Spec
	if spec.VCPUs != vcpus || spec.MemoryMiB != mib {
		t.Errorf("the machine started with %d vCPUs and %d MiB, want %d and %d", spec.VCPUs, spec.MemoryMiB, vcpus, mib)
	}
	if _, has := host.VM().Size(); grown != 0 && has != grown {
		t.Errorf("the machine has %d MiB, want %d", has, grown)
	}
}

// A pod whose annotations want a larger machine starts from the configuration's
// template, and grows before its first container is created.
func TestLargerPodFromTemplate(t *testing.T) {
	host, opts, _ := largerHost(t)
	makeTemplate(t, host, plainOf(opts))
	s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if host.VM().Spec.Template == nil {
		t.Error("the machine booted")
	}
	checkSize(t, host, 1, 256, 256)
	p := &pod{Sandbox: s, t: t, host: host}
	p.create(sandboxID)
	checkSize(t, host, 1, 256, 1024)
	if has, _ := host.VM().Size(); has != 2 {
		t.Errorf("the machine has %d vCPUs, want 2", has)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	checkNothingLeft(t, host)
}

// Such a pod also has the template made that it misses.
func TestLargerPodOrdersTemplate(t *testing.T) {
	host, opts, _ := largerHost(t)
	m := newMakers()
	runOne(t, host, m, opts, true)
	checkSize(t, host, 1, 256, 0)
	_ = await(t, "the order", m.ordered)
	m.end(t)
}

// A pod that cannot have the template starts with its own size, as without templates.
func TestLargerPodBoots(t *testing.T) {
	for name, change := range map[string]func(*virtcontainers.Options){
		"off":        func(o *virtcontainers.Options) { o.Config.Factory.Template = false },
		"parameters": func(o *virtcontainers.Options) { o.Config.Hypervisor.KernelParams = "x=1" },
		"maximum":    func(o *virtcontainers.Options) { o.Config.Hypervisor.MaxVCPUs = 3 },
		"static":     func(o *virtcontainers.Options) { o.Config.Runtime.StaticSizing = true },
	} {
		t.Run(name, func(t *testing.T) {
			host, opts, _ := largerHost(t)
			makeTemplate(t, host, plainOf(opts))
			change(&opts)
			if fromTemplate(t, host, opts) {
				t.Error("the sandbox came from a template that does not fit")
			}
			checkSize(t, host, 2, 1024, 0)
		})
	}
}

// Nor does it grow if it has to boot because its template failed.
func TestLargerPodBootsAnew(t *testing.T) {
	host, opts, _ := largerHost(t)
	makeTemplate(t, host, plainOf(opts))
	host.Monitor.Hook(fake.AttachStep(hypervisor.FSShare{}), func(_ context.Context, vm *fake.VM) error {
		if vm.Spec.Template != nil {
			return errInjected
		}
		return nil
	})
	if fromTemplate(t, host, opts) {
		t.Error("the second try came from the template")
	}
	checkSize(t, host, 2, 1024, 0)
}

// What continues from a saved pod starts as that one did, whatever the configuration
// now says of templates.
func TestLargerPodContinues(t *testing.T) {
	for name, templates := range map[string]struct{ before, now bool }{"then off": {true, false}, "then on": {false, true}} {
		t.Run(name, func(t *testing.T) {
			s := saverOn(t, newHost(t), nil, func(o *virtcontainers.Options) {
				larger(o.Config)
				o.Config.Factory.Template, o.Config.Factory.TemplatePath = templates.before, t.TempDir()
			})
			started := s.vm.Spec
			if plain := started.MemoryMiB == 256; plain != templates.before {
				t.Errorf("the first one started with %d MiB", started.MemoryMiB)
			}
			s.saveAndEnd()
			r := s.restoration("next")
			larger(r.config)
			r.config.Factory.Template = templates.now
			next := s.restored(r)
			if is := next.vm.Spec; is.VCPUs != started.VCPUs || is.MemoryMiB != started.MemoryMiB {
				t.Errorf("it starts with %d vCPUs and %d MiB, want %d and %d", is.VCPUs, is.MemoryMiB, started.VCPUs, started.MemoryMiB)
			}
			next.checkGoesOn()
		})
	}
}
