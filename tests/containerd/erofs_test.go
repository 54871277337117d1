package containerd

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// withErofs lets containerd keep layers as erofs; size is that of the file that
// a container writes to, or empty for a directory.
func withErofs(t *testing.T, size string) func(*harness.Options) {
	t.Helper()
	if _, err := exec.LookPath("mkfs.erofs"); err != nil {
		t.Skipf("%v (apt-get install erofs-utils)", err)
	}
	return func(o *harness.Options) { o.UseErofs(size) }
}

// The layers and the writable part are disks, of which the guest makes an
// overlay.
func TestErofsRootfs(t *testing.T) {
	eachWithDisks(t, true, withErofs(t, "64MiB"), func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := idle(ctx, t, pod)
		if root := rootMount(ctx, t, c); root[1] != "overlay" || !strings.HasPrefix(root[2], "rw") {
			t.Errorf("the root is %q, want a writable overlay", root)
		}
		wantBlockDevices(ctx, t, c, 4) // one to write and one layer of each
		other := idle(ctx, t, pod)
		wantBlockDevices(ctx, t, c, 5) // the layer is already attached
		execOut(ctx, t, c, harness.ExecConfig{Args: script("echo kept > /file; rm /bin/vi; ls /bin/sh")})
		if out := execOut(ctx, t, other, harness.ExecConfig{Args: script("ls /bin/vi; ls /file || true")}); out != "/bin/vi\n" {
			t.Errorf("the other container sees %q", out)
		}
		if err := other.Remove(ctx); err != nil {
			t.Error(err)
		}
		if _, err := c.KillAndWait(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Task.Delete(d.Context(ctx)); err != nil {
			t.Fatal(err)
		}
		runOver(ctx, t, d, c, pod) // of two layers
	})
}

// If the guest has no disks, or the writable part is a directory on the host,
// the host makes the overlay: containerd or, if it was told that the guest does
// so, the shim.
func TestErofsShared(t *testing.T) {
	for name, test := range map[string]struct {
		disks bool
		size  string
		kill  string
	}{
		"no disks":               {false, "64MiB", harness.KindVMM},
		"no disks, directory":    {false, "", harness.KindVMM},
		"directory":              {true, "", harness.KindVMM},
		"directory, killed shim": {true, "", harness.KindShim},
	} {
		t.Run(name, func(t *testing.T) {
			eachWithDisks(t, test.disks, withErofs(t, test.size), func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				recorder := d.Record(ctx)
				defer recorder.Close()
				pod := newPod(ctx, t, d)
				c := idle(ctx, t, pod)
				wantShared(ctx, t, c)
				wantBlockDevices(ctx, t, c, 0)
				execOut(ctx, t, c, harness.ExecConfig{Args: script("echo kept > /file; rm /bin/vi; cat /file")})
				killOne(t, d, test.kill)
				awaitLoss(ctx, t, recorder, test.kill, pod)
			})
		})
	}
}
