package container

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestDropBindData(t *testing.T) {
	mounts := []specs.Mount{
		{Destination: "/dev/shm", Type: "bind", Source: "/s", Options: []string{"rbind", "rprivate", "size=67108864"}},
		{Destination: "/data", Source: "/s", Options: []string{"bind", "ro", "z", "nosuid", "", "defaults"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=1m", "mode=1777"}},
	}
	dropped := dropBindData(mounts)
	if diff := cmp.Diff([]string{`"size=67108864" at /dev/shm`, `"z" at /data`, `"" at /data`}, dropped); diff != "" {
		t.Error(diff)
	}
	want := []specs.Mount{
		{Destination: "/dev/shm", Type: "bind", Source: "/s", Options: []string{"rbind", "rprivate"}},
		{Destination: "/data", Source: "/s", Options: []string{"bind", "ro", "nosuid", "defaults"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=1m", "mode=1777"}},
	}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
}

// libcontainer refuses the mount as the engine sent it, and takes what is left.
func TestBindDataIsRefusedByLibcontainer(t *testing.T) {
	for _, drop := range []bool{false, true} {
		spec := specconv.Example()
		spec.Root.Path = "/"
		spec.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.MountNamespace}}
		spec.Mounts = []specs.Mount{{Destination: "/dev/shm", Type: "bind", Source: "/tmp", Options: []string{"rbind", "size=1", "defaults"}}}
		spec.Hostname, spec.Linux.Resources = "", nil
		spec.Linux.ReadonlyPaths, spec.Linux.MaskedPaths = nil, nil
		if drop {
			dropBindData(spec.Mounts)
		}
		config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: "c", Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		_, err = libcontainer.Create(t.TempDir(), "c", config)
		if (err == nil) != drop {
			t.Errorf("dropped %v: %v", drop, err)
		}
	}
}
