package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// What the host mounts and unmounts below a volume with rslave propagation
// (Kubernetes: HostToContainer) appears and disappears in a container that uses
// it, and only files that the container has open prevent an unmount, as with
// runc.
func TestHostMountsBelowVolume(t *testing.T) {
	needVM(t)
	if daemon := harness.ExternalVirtiofsd(); daemon != "" {
		t.Skipf("%s keeps what the guest has looked at busy", daemon)
	}
	for _, mode := range []string{"auto", "always"} {
		t.Run(mode, func(t *testing.T) {
			configure := func(o *harness.Options) { o.Kata.Extra = fmt.Sprintf("virtio_fs_cache = %q\n", mode) }
			newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				if mode == "auto" {
					t.Run("runc", func(t *testing.T) {
						peer := startPeer(t, d)
						hostMounts(peer.Context(ctx), t, peer, mode)
					})
				}
				t.Run("kata", func(t *testing.T) { hostMounts(ctx, t, d, mode) })
			})
		})
	}
}

// hostMounts mounts and unmounts on the host below a container's volume, in one
// cache mode. A guest that may cache without expiry does not notice mounts on
// names that it has accessed before.
func hostMounts(ctx context.Context, t *testing.T, d *harness.Daemon, mode string) {
	v := newSlaveVolume(ctx, t, d)
	if mode != "always" {
		v.await(ctx, t, "below")
	}
	v.mount(t, "first")
	v.await(ctx, t, "first")
	v.look(ctx, t, "find /v; ls -lR /v; cat /v/sub/d/*")
	v.unmount(t)
	v.await(ctx, t, "below")
	if mode == "always" {
		return
	}
	v.mount(t, "second")
	v.await(ctx, t, "second")
	holder := v.hold(ctx, t)
	for range fewestLooks { // longer than an unused descriptor is kept
		if err := unix.Unmount(v.sub, 0); !errors.Is(err, unix.EBUSY) {
			t.Fatalf("unmount while the container has a file open: %v, want EBUSY", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	if err := holder.Remove(ctx); err != nil {
		t.Fatal(err)
	}
	v.unmount(t)
	v.await(ctx, t, "below")
}

// slaveVolume is a host directory that a container has at /v.
type slaveVolume struct {
	c   *harness.Container
	sub string // where the host mounts
}

func newSlaveVolume(ctx context.Context, t *testing.T, d *harness.Daemon) slaveVolume {
	t.Helper()
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	for _, err := range []error{
		unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_SHARED, ""), os.Mkdir(sub, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = unix.Unmount(sub, unix.MNT_DETACH) // mounted if the test failed
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(sub, "what"), "below")
	c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
		Name: "looks", Args: []string{"sleep", "100000"},
		Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{
			{Type: "bind", Source: dir, Destination: "/v", Options: []string{"rbind", "rslave", "rw"}},
		})},
	})
	return slaveVolume{c: c, sub: sub}
}

// mount mounts a file system with some files.
func (v slaveVolume) mount(t *testing.T, what string) {
	t.Helper()
	if err := unix.Mount("volume", v.sub, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(v.sub, "what"), what)
	if err := os.Mkdir(filepath.Join(v.sub, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		write(t, filepath.Join(v.sub, "d", fmt.Sprint(i)), what)
	}
}

// unmount is umount(8), tried again as a storage driver does.
func (v slaveVolume) unmount(t *testing.T) {
	t.Helper()
	began := time.Now()
	for tries := 1; ; tries++ {
		err := unix.Unmount(v.sub, 0)
		if err == nil {
			t.Logf("unmounted at try %d, after %.1f s", tries, time.Since(began).Seconds())
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("unmount after %d tries in %v: %v", tries, time.Since(began), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (v slaveVolume) look(ctx context.Context, t *testing.T, text string) string {
	t.Helper()
	return execOut(ctx, t, v.c, harness.ExecConfig{Args: script("{ " + text + "; } 2>&1")})
}

// await looks until the container sees what is mounted.
func (v slaveVolume) await(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	began := time.Now()
	for looks := 1; ; looks++ {
		got := strings.TrimSpace(v.look(ctx, t, "cat /v/sub/what; [ -e /v/sub/d ] && ls /v/sub/d | wc -l; true"))
		if want := what + "20"; got == what && what == "below" || got == want {
			return
		}
		if looks >= fewestLooks && time.Since(began) > patience {
			t.Fatalf("the container sees %q, want %q", got, what)
		}
	}
}

// hold starts a process in the container that has a file open.
func (v slaveVolume) hold(ctx context.Context, t *testing.T) *harness.Process {
	t.Helper()
	p, err := v.c.Exec(ctx, harness.ExecConfig{Args: script("exec 3< /v/sub/what; echo ready; exec sleep 100000")})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Out.Await(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	return p
}
