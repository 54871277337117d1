package virtcontainers

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/virtiofs"
	"github.com/katabox/katabox/virtcontainers/factory"
)

// reachesMemory reports whether all device back ends of the machine can do
// without shared memory: an external virtiofsd cannot.
func (b *blueprint) reachesMemory() bool { return b.config.Hypervisor.VirtioFS.Daemon == "" }

// sharesTemplate reports whether a machine from a template can map the
// template's memory privately, in place of a copy. QEMU must have its own
// user, because the threads that serve the share access its memory as that
// user. A balloon could not give back memory: QEMU would make a hole in
// the template's file, which is sealed.
func (b *blueprint) sharesTemplate(spec hypervisor.Spec) bool {
	return b.reachesMemory() && !b.config.Hypervisor.Memory.Reclaim && spec.Jail != nil && spec.Jail.UID != 0
}

// launchPrivate starts a machine from a template with private memory. It
// returns nil if the machine must have a copy: because it cannot do without, or
// because this failed, which is logged.
func (m *machine) launchPrivate(ctx context.Context, key factory.Key, t *factory.Template, spec hypervisor.Spec) (hypervisor.VM, error) {
	if !m.sharesTemplate(spec) {
		return nil, nil //nolint:nilnil // said above
	}
	lent, err := m.templates().Lend(key, t)
	if err != nil {
		m.copies(ctx, key, err)
		return nil, nil //nolint:nilnil // said above
	}
	from := *spec.Template
	from.Sealed, from.Filled = lent.File, lent.Filled
	spec.Template = &from
	vm, err := m.platform.Monitor.Launch(ctx, spec)
	if err == nil {
		err = m.checkReach(ctx, vm)
	}
	if err == nil {
		// Until the machine ends, others that start find the memory here.
		if lent.Copied {
			m.template.copied = lent
		}
		go func() {
			<-vm.Done()
			_ = lent.Close()
		}()
		return vm, nil
	}
	err = errors.Join(err, lent.Close())
	if ctx.Err() != nil || m.stays {
		return nil, err
	}
	m.copies(ctx, key, err)
	// QEMU may have read some of it.
	if _, err := t.State.Seek(0, 0); err != nil {
		return nil, fmt.Errorf("read state of template again: %w", err)
	}
	return nil, nil //nolint:nilnil // said above
}

func (m *machine) copies(ctx context.Context, key factory.Key, why error) {
	log.G(ctx).WithField("template", key).WithError(why).Warn("the guest gets a copy of its template's memory")
}

// checkReach stops a VM whose memory the back ends may not access. Until then it is the
// machine's: one that does not end is recorded.
func (m *machine) checkReach(ctx context.Context, vm hypervisor.VM) error {
	owner := hypervisor.OwnerOf(vm)
	if owner == nil {
		return nil
	}
	if err := virtiofs.Reachable(owner); err != nil {
		return errors.Join(err, m.useVM(vm), m.stopVM(context.WithoutCancel(ctx)))
	}
	return nil
}
