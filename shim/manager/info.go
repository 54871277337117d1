package manager

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/containerd/containerd/api/types"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// RuntimeName is the runtime's name to containerd.
const RuntimeName = "io.containerd.kata.v2"

// featuresType is the type under which containerd expects the OCI runtime's
// features.
const featuresType = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"

// Info answers containerd's -info: what runtime this is, and what of the OCI
// spec it can do.
func Info(version string, stdout io.Writer) error {
	encoded, err := json.Marshal(runtimeFeatures())
	if err != nil {
		return fmt.Errorf("encode runtime features: %w", err)
	}
	annotations := map[string]string{
		"io.katacontainers.vmm":       "qemu",
		"io.katacontainers.shared-fs": "virtio-fs",
	}
	if mounts := allowedMounts(); mounts != "" {
		annotations[allowMounts] = mounts
	}
	data, err := proto.Marshal(&types.RuntimeInfo{
		Name:        RuntimeName,
		Version:     &types.RuntimeVersion{Version: version},
		Features:    &anypb.Any{TypeUrl: featuresType, Value: encoded},
		Annotations: annotations,
	})
	if err != nil {
		return fmt.Errorf("encode runtime info: %w", err)
	}
	if _, err := stdout.Write(data); err != nil {
		return fmt.Errorf("answer with runtime info: %w", err)
	}
	return nil
}

// runtimeFeatures is what containers in a guest get, whatever the host has:
// its kernel and its libcontainer are ours.
func runtimeFeatures() *features.Features {
	yes, no := true, false
	return &features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specs.Version,
		MountOptions: []string{"bind", "idmap", "nodev", "noexec", "nosuid", "private", "rbind", "relatime", "ridmap", "ro",
			"rprivate", "rro", "rshared", "rslave", "rw", "shared", "slave", "strictatime", "sync"},
		Linux: &features.Linux{
			Namespaces: []string{"cgroup", "ipc", "mount", "network", "pid", "user", "uts"},
			// The host's kernel maps, and refuses what it cannot.
			MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &yes}},
			Cgroup:          &features.Cgroup{V1: &no, V2: &yes, Systemd: &no, SystemdUser: &no, Rdma: &no},
			Seccomp:         &features.Seccomp{Enabled: &yes},
			Apparmor:        &features.Apparmor{Enabled: &no},
			Selinux:         &features.Selinux{Enabled: &no},
			IntelRdt:        &features.IntelRdt{Enabled: &no},
		},
	}
}
