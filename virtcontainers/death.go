package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// whileAlive returns a context that also ends when the VM or virtiofsd does.
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

// explain adds the real cause to an error of a call to the guest, and the
// guest's last output.
func (m *machine) explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil && !errors.Is(err, m.vm.Err()) {
		cause = m.died(err)
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	tail := strings.TrimSpace(m.vm.ConsoleTail())
	if line := crashIn(tail); line != "" {
		err = fmt.Errorf("%w; the guest said %q", err, line)
	}
	if tail != "" {
		err = fmt.Errorf("%w; end of the guest's console: %s", err, tail)
	}
	return err
}

// crash matches the line in which a guest says why it ends: Linux's, after the time, and
// that of Go for the agent.
var crash = regexp.MustCompile(`(?m)^(?:\[ *[0-9.]+\] )?(Kernel panic - .*|panic: .*|fatal error: .*)`)

// longestCrash bounds what is told of such a line, in bytes.
const longestCrash = 200

// crashIn returns the first such line of a console; "" if there is none. An engine may cut
// off the end of an error (Kubernetes shows 1024 bytes), and all of a console's end is long.
func crashIn(console string) string {
	found := crash.FindStringSubmatch(console)
	if found == nil {
		return ""
	}
	return found[1][:min(len(found[1]), longestCrash)]
}

// explainIfGone adds the guest's last output if the call failed because the
// guest died.
func (m *machine) explainIfGone(ctx context.Context, err error) error {
	if m.died(err) == nil {
		return err
	}
	return m.explain(ctx, err)
}

// deathWait is how long to wait for the machine's end after a connection or
// virtiofsd has ended: that is seen a moment before the VMM process is reaped.
const deathWait = time.Second

func (m *machine) awaitDeath() {
	select {
	case <-m.vm.Done():
	case <-time.After(deathWait):
	}
}

// filesLost says why the pod's files are no longer served: because their server
// ended, or the machine.
func (m *machine) filesLost() error {
	m.awaitDeath()
	if cause := m.died(nil); cause != nil {
		return cause
	}
	return m.files.Err()
}

// died returns why the VM ended, if its end caused err; otherwise nil.
func (m *machine) died(err error) error {
	// The agent answers "canceled" when its server loses its connection.
	if guest.Disconnected(err) || errors.Is(err, context.Canceled) || errdefs.IsCanceled(err) {
		m.awaitDeath()
	}
	if closed(m.vm.Done()) {
		return m.death()
	}
	return nil
}

// death returns why the VM ended. The VM must have ended.
func (m *machine) death() error { return fmt.Errorf("the virtual machine ended: %w", m.vm.Err()) }
