package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
)

// machine is the pod's VM, and what serves its files to it: when one of them ends,
// so does the guest.
type machine struct {
	vm    hypervisor.VM
	files *guestfs.Pod
}

// whileAlive is a context that also ends when the VM or virtiofsd does.
func (m *machine) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-m.vm.Done():
			cancel(m.death())
		case <-m.files.Done():
			cancel(m.filesLost())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// explain adds to an error of the guest's why it really happened, and what
// the guest said last.
func (m *machine) explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil && !errors.Is(err, m.vm.Err()) {
		cause = m.died(err)
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if tail := strings.TrimSpace(m.vm.ConsoleTail()); tail != "" {
		err = fmt.Errorf("%w; end of the guest's console: %s", err, tail)
	}
	return err
}

// explainIfGone adds the guest's last words where it was the guest's death
// that made a call fail.
func (m *machine) explainIfGone(ctx context.Context, err error) error {
	if m.died(err) == nil {
		return err
	}
	return m.explain(ctx, err)
}

// deathWait is how long the end of a connection, or of virtiofsd, waits for
// the news of the machine's end: they come a moment before the monitor's
// process is reaped.
const deathWait = time.Second

func (m *machine) awaitDeath() {
	select {
	case <-m.vm.Done():
	case <-time.After(deathWait):
	}
}

// filesLost says why the pod's files are served no more: by themselves, or with
// the machine.
func (m *machine) filesLost() error {
	m.awaitDeath()
	if cause := m.died(nil); cause != nil {
		return cause
	}
	return m.files.Err()
}

// died reports whether the VM's end is behind an error, and if so why it ended.
func (m *machine) died(err error) error {
	// The agent's "canceled" is that of a server that loses its connection.
	if guest.Disconnected(err) || errors.Is(err, context.Canceled) || errdefs.IsCanceled(err) {
		m.awaitDeath()
	}
	if closed(m.vm.Done()) {
		return m.death()
	}
	return nil
}

// death says why the VM ended; it must have.
func (m *machine) death() error { return fmt.Errorf("the virtual machine ended: %w", m.vm.Err()) }
