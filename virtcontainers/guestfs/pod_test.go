package guestfs

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
)

// A configuration that the share cannot support is refused.
func TestOpenRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*config.Config)
		want string
	}{
		{"binds without a share", func(c *config.Config) {
			c.Hypervisor.SharedFS = config.SharedFSNone
			c.Runtime.SandboxBindMounts = []string{"/data"}
		}, "sandbox_bind_mounts"},
		{"a daemon's arguments without a daemon", func(c *config.Config) {
			c.Hypervisor.VirtioFS.ExtraArgs = []string{"-d"}
		}, "virtio_fs_daemon is empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := new(config.Config)
			test.set(c)
			_, err := Open(t.Context(), Options{ID: "pod", Scratch: t.TempDir(), Config: c})
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an invalid argument that names %s", err, test.want)
			}
		})
	}
}

// Disks are attached as the configuration of the pod says, and not as that of the
// machine that it was given.
func TestGivenPodsDisks(t *testing.T) {
	p, vm, _ := newPod(t)
	c := *p.opts.Config
	c.Hypervisor.BlockLogicalSector = 4096
	if err := p.Give(t.Context(), Options{ID: "given", Config: &c}); err != nil {
		t.Fatal(err)
	}
	files := p.Container(request(t))
	for _, step := range files.Steps() {
		if err := step.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := files.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
	devices := vm.Devices()
	if len(devices) != 1 {
		t.Fatalf("devices %v, want one disk", devices)
	}
	if d, ok := devices[0].(hypervisor.Disk); !ok || d.LogicalBlockSize != 4096 {
		t.Errorf("the disk is %+v, want blocks of 4096 bytes", devices[0])
	}
}

// Configurations whose shares differ have different descriptions, and equal ones
// the same.
func TestShareConfig(t *testing.T) {
	of := func(args ...string) string {
		return ShareConfig(config.Hypervisor{VirtioFS: config.VirtioFS{ExtraArgs: args}})
	}
	if of("-o", "x") == of("-o x") {
		t.Error("two arguments look like one")
	}
	if first, second := of("-o", "x"), of("-o", "x"); first != second {
		t.Error("the same arguments look different")
	}
	if cached := ShareConfig(config.Hypervisor{VirtioFS: config.VirtioFS{Cache: config.CacheNever}}); cached == of() {
		t.Error("the cache is left out")
	}
}
