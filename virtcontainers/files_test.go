package virtcontainers_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
)

// configured boots a sandbox with a changed configuration.
func configured(t *testing.T, change func(*config.Config)) *pod {
	t.Helper()
	p := &pod{t: t, host: newHost(t), observer: newObserver()}
	opts := options(p.observer)
	change(opts.Config)
	var err error
	if p.Sandbox, err = virtcontainers.New(t.Context(), p.host.Platform(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// image makes a file that can be a disk.
func image(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// disks returns the host's files that are disks of the machine now.
func (p *pod) disks() []string {
	var files []string
	for _, d := range p.host.VM().Devices() {
		if d, ok := d.(hypervisor.Disk); ok {
			files = append(files, filepath.Base(d.File.Name()))
		}
	}
	slices.Sort(files)
	return files
}

func (p *pod) wantDisks(want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, p.disks()...)); diff != "" {
		p.t.Errorf("disks of the machine (-want +got):\n%s", diff)
	}
}

// layered returns the mounts of a root file system of two layers and a writable
// disk, as containerd's erofs snapshotter passes them.
func layered(t *testing.T) []*types.Mount {
	t.Helper()
	return []*types.Mount{
		{Type: "ext4", Source: image(t, "rw"), Options: []string{"rw", "loop"}},
		{Type: "erofs", Source: image(t, "upper"), Options: []string{"ro", "loop"}},
		{Type: "erofs", Source: image(t, "lower"), Options: []string{"ro", "loop"}},
		{Type: "format/mkdir/overlay", Source: "overlay", Options: []string{
			"X-containerd.mkdir.path={{ mount 0 }}/upper:0755", "X-containerd.mkdir.path={{ mount 0 }}/work:0755",
			"workdir={{ mount 0 }}/work", "upperdir={{ mount 0 }}/upper", "lowerdir={{ overlay 1 2 }}",
		}},
	}
}

// The guest assembles a root file system of disks, which needs no share. The
// disks are removed with the container.
func TestRootfsOfDisks(t *testing.T) {
	for _, fs := range []string{config.SharedFSVirtioFS, config.SharedFSNone} {
		t.Run(fs, func(t *testing.T) {
			p := configured(t, func(c *config.Config) {
				c.Hypervisor.SharedFS = fs
				c.Hypervisor.DisableBlockRootfs = fs == config.SharedFSNone // it cannot be
			})
			opts := p.options("c1", nil)
			opts.Rootfs = layered(t)
			c, err := p.Create(t.Context(), opts, ignore)
			if err != nil {
				t.Fatal(err)
			}
			p.wantDisks("lower", "rw", "upper")
			var kinds []string
			for _, s := range p.host.Agent.Config("c1").GetStorages() {
				kinds = append(kinds, strings.TrimSpace(s.Driver+" "+s.Fstype))
			}
			if diff := cmp.Diff([]string{"scsi ext4", "scsi erofs", "scsi erofs", "overlay"}, kinds); diff != "" {
				t.Errorf("storages (-want +got):\n%s", diff)
			}
			if spec := string(p.host.Agent.Spec("c1")); !strings.Contains(spec, api.GuestStorageDir) || strings.Contains(spec, api.GuestSharedDir) {
				t.Errorf("the root is not one of disks: %s", spec)
			}
			if _, err := c.Delete(t.Context()); err != nil {
				t.Error(err)
			}
			p.wantDisks()
		})
	}
}

// A container that cannot be created leaves no disk in the machine.
func TestRootfsOfDisksFails(t *testing.T) {
	p := configured(t, func(*config.Config) {})
	opts := p.options("c1", nil)
	opts.Rootfs = layered(t)
	p.host.Agent.Fail("Create", errInjected)
	if _, err := p.Create(t.Context(), opts, neverAnnounced(t)); err == nil {
		t.Fatal("a container was created")
	}
	p.wantDisks()
	opts.Rootfs[2].Source = "/no/such/layer"
	_, err := p.Create(t.Context(), opts, neverAnnounced(t))
	wantError(t, "create", err, errdefs.IsNotFound, "/no/such/layer")
	p.wantDisks()
}

// A guest's error about a path in the guest is reported with the source on the
// host.
func TestStorageErrorsNameTheSource(t *testing.T) {
	p := configured(t, func(*config.Config) {})
	p.host.Agent.Hook("Create", func(_ context.Context, req proto.Message) error {
		var c api.ContainerConfig
		if err := proto.Unmarshal(req.(*task.CreateTaskRequest).GetOptions().GetValue(), &c); err != nil {
			return err
		}
		st, err := status.New(codes.Unknown, "structure needs cleaning").WithDetails(&api.FailedStorage{Target: c.Storages[1].Target})
		if err != nil {
			return err
		}
		return st.Err()
	})
	opts := p.options("c1", nil)
	opts.Rootfs = layered(t)
	_, err := p.Create(t.Context(), opts, neverAnnounced(t))
	wantError(t, "create", err, func(error) bool { return true }, "root file system "+opts.Rootfs[1].Source)
}

// A guest with disks is told to flush them before its machine ends; one without
// disks is not.
func TestDisksAreWrittenOut(t *testing.T) {
	for _, disks := range []bool{true, false} {
		p := configured(t, func(*config.Config) {})
		p.host.Agent.Hook("PowerOff", func(context.Context, proto.Message) error {
			p.host.VM().Die(hypervisor.ErrPowerOff)
			return nil
		})
		opts := p.options(sandboxID, nil)
		if disks {
			opts.Rootfs = layered(t)
		}
		if _, err := p.Create(t.Context(), opts, ignore); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if asked := slices.ContainsFunc(p.host.Agent.Calls(), func(c string) bool { return strings.HasPrefix(c, "PowerOff") }); asked != disks {
			t.Errorf("with disks %v: asked to power off: %v", disks, asked)
		}
	}
}

// Without a share, a mount that is not a disk is refused by name.
func TestWithoutShare(t *testing.T) {
	p := configured(t, func(c *config.Config) { c.Hypervisor.SharedFS = config.SharedFSNone })
	for _, s := range p.host.Agent.Setup().GetStorages() {
		if s.Driver == "virtio-fs" {
			t.Errorf("the guest mounts a share: %v", s)
		}
	}
	_, err := p.Create(t.Context(), p.mounted("c1", nil), neverAnnounced(t))
	wantError(t, "create", err, errdefs.IsFailedPrecondition, `shared_fs is "none"`)
}

// A volume that programs watch is copied, once for each container, and the copy
// goes with it.
func TestCopiedVolume(t *testing.T) {
	kubelet := t.TempDir()
	secret := filepath.Join(kubelet, "pods", "1f0b6a5e-5a3c-4b38-8d2b-0c9f5c1e8a01", "volumes", "kubernetes.io~secret", "s")
	if err := os.MkdirAll(secret, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("value"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := configured(t, func(c *config.Config) { c.Runtime.KubeletDir = kubelet })
	opts := p.options("c1", nil)
	opts.Bundle.Spec.Mounts = []specs.Mount{{Destination: "/secret", Type: "bind", Source: secret, Options: []string{"rbind", "ro"}}}
	c, err := p.Create(t.Context(), opts, ignore)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.copied(); got["key"] != "value" {
		t.Errorf("copied: %v", got)
	}
	if spec := string(p.host.Agent.Spec("c1")); !strings.Contains(spec, `"source":"`+api.GuestFilesDir) {
		t.Errorf("the copy is not mounted: %s", spec)
	}
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change to be copied", func() bool { return p.copied()["key"] == "other" })
	if _, err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if got := p.copied(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// Without a share the termination message is on the host before the exit is
// reported.
func TestTerminationMessage(t *testing.T) {
	kubelet := t.TempDir()
	message := filepath.Join(kubelet, "pods/uid/containers/c/1a2b3c4d")
	if err := os.MkdirAll(filepath.Dir(message), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(message, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	p := configured(t, func(c *config.Config) {
		c.Runtime.KubeletDir, c.Hypervisor.SharedFS = kubelet, config.SharedFSNone
	})
	opts := p.options("c1", nil)
	opts.Rootfs = layered(t)
	opts.Bundle.Spec.Mounts = []specs.Mount{{Destination: "/dev/termination-log", Type: "bind", Source: message, Options: []string{"rbind", "rw"}}}
	c, err := p.Create(t.Context(), opts, ignore)
	if err != nil {
		t.Fatal(err)
	}
	process := initOf(t, c)
	if err := process.Start(t.Context(), ignore); err != nil {
		t.Fatal(err)
	}
	p.host.Agent.SetFile([]byte("out of cheese"))
	if err := p.host.Agent.Exit("c1", "", 3); err != nil {
		t.Fatal(err)
	}
	if exit, err := process.Wait(t.Context()); err != nil || exit.Status != 3 {
		t.Fatal(exit, err)
	}
	if got, err := os.ReadFile(message); err != nil || string(got) != "out of cheese" {
		t.Errorf("the message on the host: %q, %v", got, err)
	}
}

// copied returns the files copied into the guest, by the last part of their
// names.
func (p *pod) copied() map[string]string {
	files := map[string]string{}
	for _, c := range p.host.Agent.Files() {
		switch change := c.Change.(type) {
		case *api.FileChange_File:
			files[c.Path] = string(change.File.Content)
		case *api.FileChange_Remove:
			for name := range files {
				if strings.HasPrefix(name, c.Path) {
					delete(files, name)
				}
			}
		}
	}
	named := map[string]string{}
	for name, content := range files {
		named[filepath.Base(name)] = content
	}
	return named
}

// The guest's kernel reserves huge pages for a container that may use some.
func TestHugepagesAreKept(t *testing.T) {
	p := newPod(t)
	opts := p.options("c1", nil)
	opts.Bundle.Spec.Linux.Resources = &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}, {Pagesize: "1GB"}}}
	if _, err := p.Create(t.Context(), opts, ignore); err != nil {
		t.Fatal(err)
	}
	storages := p.host.Agent.Config("c1").GetStorages()
	if len(storages) != 1 || !slices.Equal(storages[0].Options, []string{"pagesize=2M", "size=4194304"}) {
		t.Errorf("storages: %v", storages)
	}
	opts = p.options("c2", nil)
	opts.Bundle.Spec.Linux.Resources = &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2M,size=1", Limit: 1}}}
	_, err := p.Create(t.Context(), opts, neverAnnounced(t))
	wantError(t, "create", err, errdefs.IsInvalidArgument, `the page size is "2M,size=1"`)
}
