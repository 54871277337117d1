package containerd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/katabox/katabox/tests/harness"
)

const (
	churnRounds = 5
	churnPods   = 10
)

// Ten pods come and go at once, five times over.
func TestPodsInParallel(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		for round := range churnRounds {
			group, roundCtx := errgroup.WithContext(ctx)
			for i := range churnPods {
				group.Go(func() error { return onePod(roundCtx, d, i) })
			}
			if err := group.Wait(); err != nil {
				t.Fatalf("round %d: %v", round+1, err)
			}
			if err := d.Settled(ctx); err != nil {
				t.Fatalf("round %d: %v", round+1, err)
			}
		}
	})
}

// onePod runs a pod with one service container from birth to removal.
func onePod(ctx context.Context, d *harness.Daemon, i int) (err error) {
	pod, err := d.NewPod(ctx, fmt.Sprintf("churn%d", i))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pod.Remove(context.WithoutCancel(ctx))) }()
	text := fmt.Sprintf("pod %d\n", i)
	c, err := pod.Add(ctx, harness.ContainerConfig{Name: "churn", Args: script(fmt.Sprintf("printf %q; exit %d", text, i))})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	code, err := c.Wait(ctx)
	if err != nil {
		return err
	}
	if code != uint32(i) || c.Out.String() != text {
		return fmt.Errorf("pod %d: exit code %d, output %q", i, code, c.Out)
	}
	return nil
}
