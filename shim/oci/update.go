package oci

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/client"
)

// resourcesType is the type under which engines send OCI LinuxResources.
const resourcesType = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"

// Update changes a container's limits. Limits that resources does not set stay as
// they are.
func (r *Runtime) Update(ctx context.Context, id string, resources *specs.LinuxResources) error {
	data, err := json.Marshal(resources)
	if err != nil {
		return fmt.Errorf("encode resources: %w", err)
	}
	return r.with(ctx, id, func(ctx context.Context, _ *record, shim *client.Shim) error {
		_, err := shim.Update(ctx, &task.UpdateTaskRequest{ID: id, Resources: &anypb.Any{TypeUrl: resourcesType, Value: data}})
		return err
	})
}

// ParseResources decodes the resources in update's --resources.
func ParseResources(data []byte) (*specs.LinuxResources, error) {
	var resources specs.LinuxResources
	if err := json.Unmarshal(data, &resources); err != nil {
		return nil, fmt.Errorf("decode resources: want OCI LinuxResources in JSON: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return &resources, nil
}
