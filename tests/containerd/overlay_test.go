package containerd

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// overlayScene mounts an overlayfs with an upper directory in a volume, and does in it
// what needs whiteouts and trusted attributes. The mount is made twice: what the first
// one has written must mean the same to the second.
const overlayScene = `set -e
cd /v
mkdir -p lower/dir lower/gone.d upper work merged
for f in file changed gone dir/a gone.d/old; do echo low > lower/$f; done
ln -s file lower/link
join() { mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged; }
join
cd merged
rm gone
rm -r gone.d
mkdir gone.d
echo new > gone.d/new
echo new > changed
mv file moved
chown -h 7:8 link
cd ..
for pass in 1 2; do
	(cd merged; find . | sort | tr '\n' ' '; cat changed moved gone.d/*; stat -c '%u %g' link)
	umount merged
	join
done
umount merged
`

// Docker, containerd and Podman in a container keep their images and containers like this
// in a volume.
func TestOverlayOnVolume(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
			Name: "overlay", Args: []string{"sleep", "100000"},
			Spec: []oci.SpecOpts{
				oci.WithAddedCapabilities([]string{"CAP_SYS_ADMIN"}),
				oci.WithMounts([]specs.Mount{{Type: "bind", Source: t.TempDir(), Destination: "/v", Options: []string{"rbind", "rw"}}}),
			},
		})
		const once = ". ./changed ./dir ./dir/a ./gone.d ./gone.d/new ./link ./moved new\nlow\nnew\n7 8\n"
		if got := works(ctx, t, c, overlayScene); got != strings.Repeat(once, 2) {
			t.Errorf("got %q, want %q twice", got, once)
		}
	})
}
