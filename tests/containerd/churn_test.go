package containerd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/katabox/katabox/tests/harness"
)

const (
	churnRounds = 5
	churnPods   = 10
)

// Ten pods are made and removed concurrently, five times.
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

// onePod runs a pod with one service container from creation to removal.
func onePod(ctx context.Context, d *harness.Daemon, i int) (err error) {
	born := time.Now()
	pod, err := d.NewPod(ctx, fmt.Sprintf("churn%d", i))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pod.Remove(context.WithoutCancel(ctx))) }()
	c, err := pod.Add(ctx, harness.ContainerConfig{
		Name: "churn", Args: script(fmt.Sprintf("echo pod %d up $(cut -d. -f1 /proc/uptime); exit %d", i, i)),
	})
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
	if code != uint32(i) {
		return fmt.Errorf("pod %d: exit code %d, output %q", i, code, c.Out)
	}
	return checkChurn(d, i, c.Out.String(), time.Since(born))
}

// checkChurn checks what the container printed. A guest that booted while the
// host was busy may misjudge its TSC's frequency, so that its clock runs too
// fast and each timeout ends too early: so a guest must never be older than its
// pod. One from a template is, by the saved guest's age.
func checkChurn(d *harness.Daemon, i int, out string, age time.Duration) error {
	var pod, uptime int
	if _, err := fmt.Sscanf(out, "pod %d up %d\n", &pod, &uptime); err != nil || pod != i {
		return fmt.Errorf("pod %d: output %q", i, out)
	}
	if up := time.Duration(uptime) * time.Second; d.Runtime().VM && !harness.UseTemplates() && up > age+time.Second {
		return fmt.Errorf("pod %d: the guest's clock says %v, the pod is %v old", i, up, age)
	}
	return nil
}
