package virtcontainers

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/virtcontainers/network"
)

// slept is what a sandbox that hibernates is woken from.
type slept struct {
	Hibernation

	memory []memfile.Memory
	image  *os.File
	key    memfile.Key
	// counters are the containers' statistics, which do not change meanwhile.
	counters map[string]*stats.Metrics
	// bell rings when packets come for the pod.
	bell *network.Doorbell
	// done is set once the memory is given back.
	done atomic.Bool
	// using counts the calls of do that have not ended.
	using sync.WaitGroup
}

// do calls f, which uses the files, and waits for it no longer than ctx: a disk may
// hang. After an error of ctx f may still run, and only close may follow.
func (z *slept) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	z.using.Go(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hush stops listening for packets: none is to ring for a sandbox that is awake. It
// may be called again.
func (z *slept) hush() error {
	if z.bell == nil {
		return nil
	}
	return z.bell.Close()
}

// close closes the files when nothing uses them any more; the image is gone then.
// It waits for that no longer than undoTimeout.
func (z *slept) close() error {
	ended := make(chan error, 1)
	go func() {
		z.using.Wait()
		var errs []error
		for _, part := range z.memory {
			errs = append(errs, part.Close())
		}
		if z.image != nil {
			errs = append(errs, z.image.Close())
		}
		ended <- errors.Join(errs...)
	}()
	err := z.hush()
	select {
	case closeErr := <-ended:
		return errors.Join(err, closeErr)
	case <-time.After(undoTimeout):
		return errors.Join(err, errors.New("the disk of runtime.hibernate_path hangs"))
	}
}
