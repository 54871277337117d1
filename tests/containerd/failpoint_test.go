package containerd

import (
	"context"
	"errors"
	"testing"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers"
)

// A boot that fails at any of its steps leaves nothing, and the error names the
// step.
func TestBootFailsAtEachStep(t *testing.T) {
	needVM(t)
	for _, step := range virtcontainers.BootSteps() {
		t.Run(step, func(t *testing.T) {
			failing := func(o *harness.Options) { o.Env = []string{"KATABOX_FAILPOINT=" + step} }
			eachOwn(t, failing, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				pod, err := d.NewPod(ctx, "failing")
				if err == nil {
					err = errors.Join(errors.New("the pod was made"), pod.Remove(ctx))
				}
				wantError(t, err, step+":", "failpoint "+step)
			})
		})
	}
}
