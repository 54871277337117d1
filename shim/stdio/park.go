package stdio

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
)

var (
	errNotConnected = fmt.Errorf("it is not connected: %w", errdefs.ErrFailedPrecondition)
	errNotParked    = fmt.Errorf("it is not parked: %w", errdefs.ErrFailedPrecondition)
)

// Park implements virtcontainers.IO.
func (i *IO) Park(ctx context.Context) (stdin uint64, bound bool, err error) {
	in, err := i.beginPark()
	if err != nil {
		return 0, false, fmt.Errorf("park stdio: %w", err)
	}
	if in != nil {
		stdin, bound = in.park(ctx)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.phase != phaseParking {
		return 0, false, fmt.Errorf("park stdio: it was closed meanwhile: %w", errdefs.ErrFailedPrecondition)
	}
	i.phase = phaseParked
	return stdin, bound, nil
}

// beginPark parks the outputs, and returns the input that is to be parked.
func (i *IO) beginPark() (*input, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.phase != phaseConnected {
		return nil, errNotConnected
	}
	for _, o := range []*output{i.out, i.err} {
		if err := o.checkRead(); err != nil {
			return nil, err
		}
	}
	i.phase = phaseParking
	i.out.park()
	i.err.park()
	return i.in, nil
}

// Rebind implements virtcontainers.IO.
func (i *IO) Rebind(conns virtcontainers.Conns) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.phase != phaseParked {
		closeConns(conns)
		return fmt.Errorf("rebind stdio: %w", errNotParked)
	}
	i.phase = phaseConnected
	i.out.rebind(conns.Stdout)
	i.err.rebind(conns.Stderr)
	switch {
	case i.in != nil:
		i.in.rebind(conns.Stdin)
	case conns.Stdin != nil:
		_ = conns.Stdin.Close()
	}
	return nil
}
