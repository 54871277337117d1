package virtcontainers

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/guestfs"
)

// MachineKeys returns the keys of the template and of the spares that fit a
// configuration. They change with every input of the machine.
func MachineKeys(ctx context.Context, platform Platform, cfg *config.Config) (template, spare factory.Key, err error) {
	b, err := newBlueprint(ctx, platform, "key", cfg)
	if err != nil {
		return "", "", err
	}
	return b.keys()
}

// keys returns the keys of the template and of the spares that fit the machine.
func (b *blueprint) keys() (template, spare factory.Key, err error) {
	if err := b.checkTemplate(); err != nil {
		return "", "", err
	}
	in, err := b.inputs()
	if err == nil {
		template, err = factory.KeyOf(in)
	}
	if err != nil {
		return "", "", fmt.Errorf("inspect what a machine is made of: %w", err)
	}
	// What a template leaves open and a running machine does not.
	h := b.config.Hypervisor
	if daemon := h.VirtioFS.Daemon; daemon != "" {
		if err := in.AddFile(daemon); err != nil {
			return "", "", fmt.Errorf("inspect the share's daemon: %w", err)
		}
	}
	in.Machine = append(in.Machine, fmt.Sprintf("rootless %v %d %d, balloon %v, entropy %q, console %v, %s",
		h.Rootless, h.FirstUID, h.UIDs, h.Memory.Reclaim, h.EntropySource, h.Debug, guestfs.ShareConfig(h)))
	spare, err = factory.KeyOf(in)
	return template, spare, err
}

// templateKey returns the key of the template that fits the machine, which may have
// none (checkTemplate).
func (b *blueprint) templateKey() (factory.Key, error) {
	in, err := b.inputs()
	if err != nil {
		return "", err
	}
	return factory.KeyOf(in)
}

// spareKey returns the key of the spares that fit the machine.
func (b *blueprint) spareKey() (factory.Key, error) {
	_, key, err := b.keys()
	return key, err
}

// isPlain reports whether the machine's template, which has that key, is the one of the
// unannotated configuration. No other is ordered: otherwise annotations could fill the
// host's memory with templates.
func (b *blueprint) isPlain(ctx context.Context, key factory.Key) bool {
	plain, err := b.plain(ctx)
	if err != nil {
		return false
	}
	own, err := plain.templateKey()
	return err == nil && own == key
}

// inputs collects what the machine is made of.
func (b *blueprint) inputs() (factory.Inputs, error) {
	return factory.InputsOf(b.platform.Monitor, b.spec(nil))
}

// checkTemplate returns why no template can be made of the machine, or nil.
func (b *blueprint) checkTemplate() error {
	what := oddity(b.spec(nil))
	if what == "" && b.config.Hypervisor.EntropySource == "" {
		what = "no entropy source"
	}
	if what != "" {
		return fmt.Errorf("machines with %s have no templates: %w", what, errdefs.ErrInvalidArgument)
	}
	return nil
}

// oddity names what a machine has that none can have which continues from another
// one; empty for nothing.
func oddity(spec hypervisor.Spec) string {
	switch {
	case spec.Memory != hypervisor.MemoryBacking{}:
		return "memory of huge pages or files, or preallocated"
	case spec.ExtraMonitor != hypervisor.ExtraMonitor{}:
		return "an extra monitor"
	case spec.PanicDump != hypervisor.PanicDump{}:
		return "a directory for memory dumps"
	}
	return ""
}
