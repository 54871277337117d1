package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

const (
	rngID     = "rng"
	balloonID = "balloon"
)

// attachDevices attaches the devices that every machine has. Measured without
// KVM: QEMU takes 2 to 3 ms to attach one, and the guest's kernel needs 1 %
// more instructions to boot (some 10 ms). The guest's drivers are loaded when
// the first container runs (the agent's Resources.LoadLateDrivers).
func (m *machine) attachDevices(ctx context.Context) error {
	h := m.config.Hypervisor
	if h.EntropySource != "" && m.template.key == "" { // otherwise it came with the template
		if err := m.attachRNG(ctx, h.EntropySource); err != nil {
			return err
		}
	}
	if h.Memory.Reclaim {
		return m.vm.Attach(ctx, hypervisor.Balloon{ID: balloonID})
	}
	return nil
}

// attachRNG attaches the random number generator, which reads a file of the
// host.
func (m *machine) attachRNG(ctx context.Context, source string) error {
	rng, err := openRNG(source)
	if err != nil {
		return err
	}
	defer rng.File.Close()
	return m.vm.Attach(ctx, rng)
}

// openRNG opens the file, which the caller closes, without blocking: it may by
// mistake be a FIFO, from which a guest would get nothing, or data meant for
// another reader.
func openRNG(source string) (hypervisor.RNG, error) {
	const key = "hypervisor.qemu.entropy_source"
	file, err := os.OpenFile(source, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return hypervisor.RNG{}, fmt.Errorf("%s: %w", key, err)
	}
	info, err := file.Stat()
	if err == nil {
		if mode := info.Mode(); !mode.IsRegular() && mode&os.ModeCharDevice == 0 {
			err = fmt.Errorf("%s is neither a character device nor a regular file: %w", source, errdefs.ErrInvalidArgument)
		}
	}
	if err != nil {
		return hypervisor.RNG{}, fmt.Errorf("%s: %w", key, errors.Join(err, file.Close()))
	}
	return hypervisor.RNG{ID: rngID, File: file}, nil
}
