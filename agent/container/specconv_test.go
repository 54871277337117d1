package container

import (
	"testing"

	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// The device nodes of a container are its root's, whatever containers there were before.
func TestDeviceNodesAreTheContainersOwn(t *testing.T) {
	const inside = 100000
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: inside, Size: 1000}}
	for _, want := range []uint32{0, inside, 0} {
		spec := &specs.Spec{Root: &specs.Root{Path: "/"}, Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.MountNamespace}}}}
		if want == inside {
			spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
			spec.Linux.UIDMappings, spec.Linux.GIDMappings = ids, ids
		}
		config, err := convert(&specconv.CreateOpts{CgroupName: "x", Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		if len(config.Devices) == 0 {
			t.Fatal("no device nodes")
		}
		for _, node := range config.Devices {
			if node.Uid != want || node.Gid != want {
				t.Errorf("%s belongs to %d:%d, want %d", node.Path, node.Uid, node.Gid, want)
			}
		}
	}
}
