package guestfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// files is a Guest that counts the copies that it has.
type files struct{ copies map[string]bool }

func (f files) AddStorages(context.Context, []*api.Storage) error { return nil }

func (f files) ChangeFiles(_ context.Context, changes []*api.FileChange) error {
	for _, c := range changes {
		if c.GetRemove() != nil {
			for path := range f.copies {
				if strings.HasPrefix(path, c.GetPath()) {
					delete(f.copies, path)
				}
			}
			continue
		}
		f.copies[c.GetPath()] = true
	}
	return nil
}

func (f files) ReadFile(context.Context, string) ([]byte, error) {
	return nil, errors.New("no file was written")
}

func (f files) VolumeStats(context.Context, string) (guest.VolumeStats, error) {
	return guest.VolumeStats{}, errors.New("no volume is mounted")
}

func (f files) GrowVolume(context.Context, string, uint64) error {
	return errors.New("no volume is mounted")
}

func (f files) Reverse(context.Context, *api.ReverseOpen) (guest.Conn, error) {
	return nil, errors.New("no sockets here")
}

// newPod returns a pod without a share, its machine and its guest.
func newPod(t *testing.T) (*Pod, *fake.VM, files) {
	t.Helper()
	return newPodOn(t, new(fake.Monitor))
}

func newPodOn(t *testing.T, monitor *fake.Monitor) (*Pod, *fake.VM, files) {
	t.Helper()
	c := new(config.Config)
	c.Hypervisor.SharedFS = config.SharedFSNone
	p, err := Open(t.Context(), Options{ID: "pod", Scratch: t.TempDir(), Config: c})
	if err != nil {
		t.Fatal(err)
	}
	vm, err := monitor.Launch(t.Context(), hypervisor.Spec{ID: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.Attach(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	if err := vm.Resume(t.Context()); err != nil { // disks are detached from running machines only
		t.Fatal(err)
	}
	agent := files{map[string]bool{}}
	p.Connect(agent, func() bool { return false })
	return p, monitor.VMs()[0], agent
}

// file makes a file on the host, alone in a directory.
func file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// request is a container with a disk and two volumes that are copied.
func request(t *testing.T) Request {
	return Request{
		ID: "c1", Rootfs: []*types.Mount{{Type: "ext4", Source: file(t, "disk"), Options: []string{"rw", "loop"}}},
		Bundle: &bundle.Bundle{Dir: t.TempDir(), Spec: &specs.Spec{
			Root: &specs.Root{}, Process: &specs.Process{}, Linux: &specs.Linux{
				Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}},
			},
			Mounts: []specs.Mount{
				{Destination: "/a", Type: "bind", Source: file(t, "a"), Options: []string{"rbind"}},
				{Destination: "/proc", Type: "proc", Source: "proc"},
				{Destination: "/b", Type: "bind", Source: file(t, "b"), Options: []string{"rbind"}},
			},
		}},
	}
}

func do(t *testing.T, c *Container) error {
	t.Helper()
	for _, s := range c.Steps() {
		if err := s.Do(t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// Each mount finds its own source, whatever is between them, and Release undoes
// everything.
func TestContainer(t *testing.T) {
	p, vm, agent := newPod(t)
	c := p.Container(request(t))
	if err := do(t, c); err != nil {
		t.Fatal(err)
	}
	if len(vm.Devices()) != 1 || !p.HasDisks() || len(agent.copies) != 2 {
		t.Fatalf("devices %v, copies %v", vm.Devices(), agent.copies)
	}
	spec, err := c.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.paths.Binds {
		name := strings.TrimPrefix(b.Source, filepath.Dir(b.Source))
		if want := c.Bundle.Spec.Mounts[b.Index].Destination; name != want {
			t.Errorf("the mount at %s has the source %s", want, b.Source)
		}
		if !strings.Contains(string(spec.JSON), `"source":"`+b.At+`"`) {
			t.Errorf("the guest's spec does not mount %s: %s", b.At, spec.JSON)
		}
	}
	if len(spec.Storages) != 1 {
		t.Errorf("storages: %v", spec.Storages)
	}
	for range 2 {
		if err := c.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if len(vm.Devices()) != 0 || p.HasDisks() || len(agent.copies) != 0 {
			t.Errorf("left: devices %v, copies %v", vm.Devices(), agent.copies)
		}
	}
}

// When a step fails, those before it are undone.
func TestFailedStepLeavesNothing(t *testing.T) {
	p, vm, agent := newPod(t)
	req := request(t)
	// The disk and the copies already exist when this is checked.
	req.Bundle.Spec.Linux.Resources = &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "large", Limit: 1}}}
	err := do(t, p.Container(req))
	if err == nil || !strings.Contains(err.Error(), `the page size is "large"`) {
		t.Errorf("got %v", err)
	}
	if len(vm.Devices()) != 0 || p.HasDisks() || len(agent.copies) != 0 {
		t.Errorf("left: devices %v, copies %v", vm.Devices(), agent.copies)
	}
}
