package containerd

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// What docs/compat.md says of the share's files, whatever file system of the host they are
// on: with runc each depends on that one. Containers see it in a volume, at /v.
func TestFilesOfTheShare(t *testing.T) {
	needVM(t)
	if daemon := harness.ExternalVirtiofsd(); daemon != "" {
		t.Skipf("%s does otherwise", daemon)
	}
	const refused, noIoctl = "exit 1: probe: operation not supported", "exit 1: probe: inappropriate ioctl for device"
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := t.TempDir()
		buildProbe(t, dir)
		c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
			Name: "files", Args: []string{"sleep", "100000"},
			Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{{Type: "bind", Source: dir, Destination: "/v", Options: []string{"rbind", "rw"}}})},
		})
		for _, row := range []struct{ name, script, want string }{
			{"a range is collapsed", "truncate -s 65536 f; ./probe file collapse f", refused},
			{"a range is inserted", "truncate -s 65536 f; ./probe file insert f", refused},
			{"lsattr", "touch f; ./probe file lsattr f", noIoctl},
			{"chattr", "touch f; ./probe file chattr f", noIoctl},
			{"filefrag", "touch f; ./probe file filefrag f", refused},
			{"epoll", "touch f; ./probe file epoll f", "exit 0: 1 / ok"},
			{"RWF_NOWAIT, read", "echo x > f; ./probe file preadv2 f", refused},
			{"RWF_NOWAIT, write", "echo x > f; ./probe file pwritev2 f", refused},
			{"FAN_REPORT_FID", "touch f; ./probe file fanotify f", "exit 1: probe: fanotify_mark: no such device"},
			{
				"set-group-ID by a supplementary group",
				"mkdir g; chown 0:1234 g; chmod 2777 g; touch g/f; chmod 666 g/f; ./probe file setgid g/f", "exit 0: 755 2755 / ok",
			},
			{"its device", `touch f; n=$(stat -c %d f); ls /sys/dev/block/$((n >> 8 & 4095)):$((n & 255)) 2>/dev/null || echo none`, "exit 0: none"},
		} {
			e, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script("cd /v; { " + row.script + "\n} 2>&1")})
			if err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
			if got := outcomeOf(code, e.Out.String()); got != row.want {
				t.Errorf("%s: %s, want %s", row.name, got, row.want)
			}
		}
	})
}
