package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers"
)

// A boot that fails at any of its steps leaves nothing, and the error names the
// step. One engine makes all pods: its shims read the step from a file.
func TestBootFailsAtEachStep(t *testing.T) {
	needVM(t)
	file := filepath.Join(t.TempDir(), "step")
	failing := func(o *harness.Options) { o.Env = []string{"KATABOX_FAILPOINT=@" + file} }
	newestOwn(t, failing, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		for _, step := range virtcontainers.BootSteps() {
			t.Run(step, func(t *testing.T) {
				if err := os.WriteFile(file, []byte(step), 0o600); err != nil {
					t.Fatal(err)
				}
				pod, err := d.NewPod(ctx, "failing")
				if err == nil {
					err = errors.Join(errors.New("the pod was made"), pod.Remove(ctx))
				}
				wantError(t, err, step+":", "failpoint "+step)
				if err := d.Settled(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	})
}
