package manager

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// RuntimeName is the runtime's name to containerd.
const RuntimeName = "io.containerd.kata.v2"

// featuresType is the type under which containerd expects the OCI runtime's
// features.
const featuresType = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"

// Info answers containerd's -info: which runtime this is, and which parts of the
// OCI spec it supports.
func Info(version string, stdout io.Writer) error {
	encoded, err := json.Marshal(guestspec.Features())
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

// Features answers the command "features" as OCI runtimes do: which parts of the
// OCI spec this runtime supports, as JSON.
func Features(stdout io.Writer) error {
	encoder := json.NewEncoder(stdout)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(guestspec.Features()); err != nil {
		return fmt.Errorf("answer with runtime features: %w", err)
	}
	return nil
}
