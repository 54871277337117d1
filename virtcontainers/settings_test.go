package virtcontainers_test

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
)

// The guest is told where its hooks are, and its console is logged if debugging
// is on.
func TestGuestSettings(t *testing.T) {
	for _, debug := range []bool{false, true} {
		host := newHost(t)
		opts := withMachine(func(h *config.Hypervisor) { h.GuestHookPath, h.Debug = "/hooks", debug })
		if err := bootWith(t, host, opts); err != nil {
			t.Fatal(err)
		}
		if got := host.Agent.Setup().GetGuestHookPath(); got != "/hooks" {
			t.Errorf("the guest looks for hooks in %q", got)
		}
		spec := host.VM().Spec
		if (spec.ConsoleLine != nil) != debug || strings.Contains(spec.KernelParams, "loglevel=7") != debug {
			t.Errorf("debug=%v: the console is logged: %v, kernel parameters %q", debug, spec.ConsoleLine != nil, spec.KernelParams)
		}
	}
}

// A seccomp profile is passed to the guest unless seccomp is disabled.
func TestGuestSeccomp(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		host := newHost(t)
		opts := withMachine(func(*config.Hypervisor) {})
		opts.Config.Runtime.DisableGuestSeccomp = disabled
		s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
		if err != nil {
			t.Fatal(err)
		}
		b := newBundle(t, host, sandboxID)
		b.Spec.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
		_, err = s.Create(t.Context(), virtcontainers.ContainerOptions{ID: sandboxID, Bundle: b, IO: newIO(virtcontainers.Streams{})}, ignore)
		if err != nil {
			t.Error(err)
		}
		if got := strings.Contains(string(host.Agent.Spec(sandboxID)), string(specs.ActErrno)); got == disabled {
			t.Errorf("disabled=%v: the guest has the profile: %v", disabled, got)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
