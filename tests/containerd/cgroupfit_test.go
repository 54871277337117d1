package containerd

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

// If a pod's limit only leaves room for a machine smaller than the default, the
// machine is made so small that a container's limit, and the guest's memory,
// are reached before the pod's limit on the host.
func TestPodCgroupHoldsTheMachine(t *testing.T) {
	needVM(t)
	const containerLimit, podLimit = 128 << 20, 1728 << 20
	fits := func(o *harness.Options) {
		o.Kata.MemoryMiB = 2048
		o.Kata.Extra = "[factory]\nenable_template = false\n" // a template has one size
	}
	newestOwn(t, fits, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		parent := "/" + d.NewID("pods")
		t.Cleanup(func() { removeCgroup(t, parent) })
		limitMemory(t, parent, podLimit)
		pod, err := d.NewPod(ctx, "pod", oci.WithCgroup(parent+"/c"), oci.WithAnnotations(map[string]string{
			"io.kubernetes.cri.sandbox-memory": "134217728",
		}))
		if err != nil {
			t.Fatal(err)
		}
		name := d.HostName(pod.Sandbox.Box.ID())
		t.Cleanup(func() {
			removed(t, "pod", pod.Remove)
			awaitNoCgroup(t, parent+"/kata_"+name)
		})
		greedy := add(ctx, t, pod, harness.ContainerConfig{
			Name: "greedy", Args: script("tail -c 300m /dev/zero"), Spec: []oci.SpecOpts{oci.WithMemoryLimit(containerLimit)},
		})
		wantCode(ctx, t, &greedy.Process, 137)
		other := add(ctx, t, pod, harness.ContainerConfig{Name: "other", Args: script("echo alive")})
		wantCode(ctx, t, &other.Process, 0)
		names := map[string]string{parent + "/kata_" + name: "pod", "/kata_overhead/" + name: "overhead", parent + "/c": "container"}
		got, want := places(t, d, names), wantPlaces(false)
		for _, part := range []string{"vCPU memory", harness.KindVMM + " memory", "vCPU v2", harness.KindVMM + " v2"} {
			if diff := cmp.Diff(want[part], got[part]); diff != "" {
				t.Errorf("where %s is (-want +got):\n%s", part, diff)
			}
		}
	})
}
