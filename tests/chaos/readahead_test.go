package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// A container is killed while what its file system reads ahead is not answered yet.
// The guest's kernel must not unmount that file system before the answer, which
// would end the killed process on the spot, and with it, a minute later, the pod.
func TestKilledWhileItReads(t *testing.T) {
	for _, tc := range []struct {
		name, server string
		late         bool
	}{{"slow", "", true}, {"hung", "", false}, {"slow below daemon", harness.DefaultVirtiofsd, true}} {
		t.Run(tc.name, func(t *testing.T) {
			d := daemonServedBy(t, 0, tc.server)
			ctx := within(t, d)
			slow := mountSlow(t)
			pod, err := d.NewPod(ctx, "pod")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := pod.Remove(d.Context(context.Background())); err != nil {
					t.Error(err)
				}
			})
			c := addIdle(ctx, t, pod)
			for range 3 {
				killReader(ctx, t, pod, slow, tc.late)
				works(ctx, t, c, "echo x > /x && cat /x", "x\n")
				slow.reads.release()
			}
		})
	}
}

// killReader kills and removes a container while the host does not answer its read;
// late means that it does some time afterwards.
func killReader(ctx context.Context, t *testing.T, pod *harness.Pod, slow *slowFS, late bool) {
	t.Helper()
	slow.reads.hang()
	c, err := pod.Add(ctx, harness.ContainerConfig{
		Name: "reader", Args: []string{"cat", "/slow/large"}, Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{bind(slow.dir, "/slow")})},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := slow.reads.awaitHeld(ctx); err != nil {
		t.Fatal(err)
	}
	if late {
		time.AfterFunc(300*time.Millisecond, slow.reads.release)
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if code, err := c.KillAndWait(ctx); code != killed || err != nil {
		t.Fatalf("code %d, error %v, want %d", code, err, killed)
	}
	if err := c.Remove(ctx); err != nil {
		t.Fatal(err)
	}
}
