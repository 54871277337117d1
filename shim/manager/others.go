package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// askTimeout bounds a request to a shim: a shim that does not answer serves no
// containers.
const askTimeout = 2 * time.Second

// registerShim registers methods that engines do not call: which containers the
// shim serves, as a list of ids, so that "delete" of one, which is another
// process, knows whether the shim is still needed; and, for kata-runtime, how
// they started, as JSON.
func registerShim(server *ttrpc.Server, service *task.Service) {
	server.RegisterService(rpc.ShimService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		rpc.ContainersMethod: rpc.Method(func(context.Context, *emptypb.Empty) (*structpb.ListValue, error) {
			list := new(structpb.ListValue)
			for _, id := range service.ContainerIDs() {
				list.Values = append(list.Values, structpb.NewStringValue(id))
			}
			return list, nil
		}),
		rpc.TimelineMethod: rpc.Method(func(ctx context.Context, _ *emptypb.Empty) (*wrapperspb.BytesValue, error) {
			t, err := service.Timeline(ctx)
			if err != nil {
				return nil, err
			}
			data, err := json.Marshal(t)
			if err != nil {
				return nil, fmt.Errorf("encode timeline: %w", err)
			}
			return wrapperspb.Bytes(data), nil
		}),
	}})
}

// servesOthers reports whether the shim that belongs to a bundle answers and
// serves containers other than the bundle's own.
func servesOthers(p *Params) bool {
	address, err := bundle.Address(p.Bundle)
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout("unix", socketPath(address), askTimeout)
	if err != nil {
		return false
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var list structpb.ListValue
	if err := client.Call(ctx, rpc.ShimService, rpc.ContainersMethod, &emptypb.Empty{}, &list); err != nil {
		return false
	}
	return slices.ContainsFunc(list.Values, func(v *structpb.Value) bool { return v.GetStringValue() != p.ID })
}
