package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// The containers of a pod have one emptyDir in common: one connects to a UNIX socket
// that another has made in it, as programs and their sidecars do. It outlives the
// container that had it first.
func TestSocketInEmptyDir(t *testing.T) {
	needVM(t)
	kubelet := t.TempDir()
	configure := func(o *harness.Options) { o.Kata.Extra = fmt.Sprintf("[runtime]\nkubelet_root_dir = %q\n", kubelet) }
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := filepath.Join(kubelet, "pods/uid/volumes/kubernetes.io~empty-dir/run")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		buildProbe(t, dir)
		pod := newPod(ctx, t, d)
		with := func(name, mode string) *harness.Container {
			return add(ctx, t, pod, harness.ContainerConfig{Name: name, Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{
				{Type: "bind", Source: dir, Destination: "/v", Options: []string{"rbind", "rprivate", mode}},
			})}})
		}
		first, server, client, reader := with("first", "rw"), with("server", "rw"), with("client", "rw"), with("reader", "ro")
		if err := first.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		pod.Services = pod.Services[1:]
		execOut(ctx, t, server, harness.ExecConfig{Args: script("(/v/probe serve unix:///v/sock >/v/said 2>&1 </dev/null &); until grep -q ready /v/said; do sleep 1; done")})
		execOut(ctx, t, client, harness.ExecConfig{Args: script("/v/probe check 'unix:///v/sock?bytes=1000' && echo written >/v/file")})
		if got := execOut(ctx, t, reader, harness.ExecConfig{Args: script("cat /v/file; echo x 2>/dev/null >/v/file || echo refused")}); got != "written\nrefused\n" {
			t.Errorf("a container that may only read: %q", got)
		}
		if data, err := os.ReadFile(filepath.Join(dir, "file")); string(data) != "written\n" {
			t.Errorf("on the host: %q, %v", data, err)
		}
	})
}
