package containerd

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// openEuler's annotations on the pause container set the size of the machine;
// on a service container they have no effect.
func TestAnnotationsSetTheSize(t *testing.T) {
	needVM(t)
	const memory = "com.github.containers.virtcontainers.sandbox_mem"
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod, err := d.NewPod(ctx, "sized", oci.WithAnnotations(map[string]string{
			memory: "400M", "com.github.containers.virtcontainers.sandbox_cpu": "1.5",
			"io.katacontainers.config.hypervisor.kernel_params": "katabox.test=1",
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := pod.Remove(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
		c := add(ctx, t, pod, harness.ContainerConfig{
			Name: "idle", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithAnnotations(map[string]string{memory: "much"})},
		})
		total := strings.Fields(execOut(ctx, t, c, harness.ExecConfig{Args: []string{"grep", "MemTotal", "/proc/meminfo"}}))
		if kib, err := strconv.Atoi(total[1]); err != nil || kib <= 300<<10 || kib > 400<<10 {
			t.Errorf("the guest has %q of memory, %v; want somewhat less than 400 MiB", total, err)
		}
		if cpus := strings.TrimSpace(execOut(ctx, t, c, harness.ExecConfig{Args: []string{"nproc"}})); cpus != "2" {
			t.Errorf("the guest has %s CPUs, want 2", cpus)
		}
		if line := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"cat", "/proc/cmdline"}}); !strings.Contains(line, "katabox.test=1") {
			t.Errorf("kernel command line %q", line)
		}
	})
}

// An annotation that the operator has not enabled fails the pod and leaves
// nothing.
func TestAnnotationNotEnabled(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		const name = "io.katacontainers.config.hypervisor.default_memory"
		spec := []oci.SpecOpts{oci.WithAnnotations(map[string]string{name: "512"})}
		err := create(ctx, d, harness.ContainerConfig{Name: "wanting", Args: []string{"true"}, Spec: spec})
		wantError(t, err, name, `"512" is not enabled`, "enable_annotations")
	})
}
