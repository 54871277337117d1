package containerd

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

// A pod costs one shim, and with a VM one QEMU and its file server, however
// many containers it has.
func TestPodCostsOneOfEach(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		for range 4 {
			idle(ctx, t, pod)
		}
		procs, err := d.Processes()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, p := range procs {
			got[p.Kind()]++
			t.Log(p)
		}
		want := map[string]int{harness.KindShim: 1, harness.KindVMM: 1, harness.KindStandIn: 5}
		if harness.ExternalVirtiofsd() != "" {
			want[harness.KindVirtiofsd] = 1
		}
		if !bed.runtime.VM {
			// Without a VM the containers' processes are on the host.
			want = map[string]int{harness.KindShim: 1, harness.KindOther: 5}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("host processes (-want +got):\n%s", diff)
		}
	})
}

// The containers of a pod share what a pod shares, and nothing else.
func TestPodSharesNamespaces(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		a, b := idle(ctx, t, pod), idle(ctx, t, pod)
		for _, test := range []struct {
			ns     string
			shared bool
		}{{"ipc", true}, {"uts", true}, {"net", true}, {"mnt", false}, {"pid", false}} {
			ask := harness.ExecConfig{Args: []string{"readlink", "/proc/self/ns/" + test.ns}}
			first, second := execOut(ctx, t, a, ask), execOut(ctx, t, b, ask)
			if (first == second) != test.shared {
				t.Errorf("%s namespaces: %q and %q, want shared=%t", test.ns, first, second, test.shared)
			}
		}
		if got := strings.TrimSpace(execOut(ctx, t, a, harness.ExecConfig{Args: []string{"hostname"}})); got != "pod" {
			t.Errorf("hostname %q, want that of the pod", got)
		}
	})
}

// What a container writes is private to it, and stays until it is removed.
func TestRootfsIsWritableAndOwn(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		a, b := idle(ctx, t, pod), idle(ctx, t, pod)
		execOut(ctx, t, a, harness.ExecConfig{Args: script("echo mine >/etc/own && ln -s own /etc/link && chown 1000:1000 /etc/own && rm /bin/true")})
		got := execOut(ctx, t, a, harness.ExecConfig{Args: script("cat /etc/link; stat -c %u:%g /etc/own; ls /bin/true 2>/dev/null || echo removed")})
		if want := "mine\n1000:1000\nremoved\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := execOut(ctx, t, b, harness.ExecConfig{Args: script("ls /etc/own 2>/dev/null || echo none; ls /bin/true")}); got != "none\n/bin/true\n" {
			t.Errorf("the other container sees %q", got)
		}
	})
}

// Service containers can be added and removed while the pod stays.
func TestServicesComeAndGo(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		for range 3 {
			c := add(ctx, t, pod, harness.ContainerConfig{Args: script("exit 3")})
			wantCode(ctx, t, &c.Process, 3)
			if err := c.Remove(ctx); err != nil {
				t.Error(err)
			}
		}
		pod.Services = nil
		if status, err := pod.Sandbox.Task.Status(ctx); err != nil || status.Status != "running" {
			t.Errorf("the pause container is %q, error %v", status.Status, err)
		}
	})
}
