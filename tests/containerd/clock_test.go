package containerd

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// A guest's clock that is wrong is set while the pod runs.
func TestClockIsKept(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
			Name: "clock", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithAddedCapabilities([]string{"CAP_SYS_TIME"})},
		})
		for _, off := range []time.Duration{-time.Hour, time.Hour} {
			want := strconv.FormatInt(time.Now().Add(off).Unix(), 10)
			execOut(ctx, t, c, harness.ExecConfig{Args: script("date -s @" + want)})
			deadline := time.Now().Add(3 * time.Minute)
			for {
				text := execOut(ctx, t, c, harness.ExecConfig{Args: script("date +%s")})
				at, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				if time.Since(time.Unix(at, 0)).Abs() < time.Minute {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the clock was put wrong by %v, and still is: %v", off, time.Unix(at, 0))
				}
				time.Sleep(time.Second)
			}
		}
	})
}
