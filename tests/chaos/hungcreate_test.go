package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// A create whose volume hangs on the host ends with an error that names it, also a
// pod's first one. Meanwhile and afterwards the pod works and can be removed, and so
// do others, while the file system still hangs.
func TestCreateWithAHungVolume(t *testing.T) {
	d := daemonServedBy(t, 0, "")
	const limit = 30 * time.Second
	dropIn(t, d, "51-create", fmt.Sprintf("[runtime]\ncreate_container_timeout = %d\n", int(limit.Seconds())))
	ctx := within(t, d)
	slow := mountSlow(t)
	pod, err := d.NewPod(ctx, "pod")
	if err != nil {
		t.Fatal(err)
	}
	c := addIdle(ctx, t, pod)
	slow.hang()
	hung := oci.WithMounts([]specs.Mount{bind(slow.dir, "/slow")})
	added, first := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := pod.Add(ctx, harness.ContainerConfig{Name: "hung", Args: idle.Args, Spec: []oci.SpecOpts{hung}})
		added <- err
	}()
	if err := slow.awaitHeld(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { // while that one waits
		_, err := d.NewPod(ctx, "first", hung)
		first <- err
	}()
	works(ctx, t, c, "echo x > /x && cat /x", "x\n")
	fails(t, added, limit, slow.dir)
	other, err := pod.Add(ctx, harness.ContainerConfig{Name: "other", Args: idle.Args})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(ctx); err != nil {
		t.Fatal(err)
	}
	works(ctx, t, other, "echo y", "y\n")
	fails(t, first, limit, slow.dir)
	removing, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if err := pod.Remove(removing); err != nil {
		t.Errorf("remove the pod: %v", err)
	}
}

// fails waits for the end of a create, which must be one by its limit, and name the
// volume.
func fails(t *testing.T, created <-chan error, limit time.Duration, volume string) {
	t.Helper()
	select {
	case err := <-created:
		if err == nil || !strings.Contains(err.Error(), volume) || !strings.Contains(err.Error(), "create_container_timeout") {
			t.Errorf("the create ended with %v", err)
		}
	case <-time.After(limit + removeTimeout):
		t.Fatal("the create does not end")
	}
}
