package manager

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// A shim says on its socket which containers it serves, so that "delete" of
// one, which is another process, knows whether the shim is still needed.
// Engines do not call this.
const (
	shimService      = "katabox.shim.v1.Shim"
	containersMethod = "Containers"
	// askTimeout bounds the question: a shim that does not answer serves
	// nobody.
	askTimeout = 2 * time.Second
)

// registerShim makes the server answer that question: a list of ids.
func registerShim(server *ttrpc.Server, service *task.Service) {
	server.RegisterService(shimService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		containersMethod: rpc.Method(func(context.Context, *emptypb.Empty) (*structpb.ListValue, error) {
			list := new(structpb.ListValue)
			for _, id := range service.ContainerIDs() {
				list.Values = append(list.Values, structpb.NewStringValue(id))
			}
			return list, nil
		}),
	}})
}

// servesOthers reports whether the shim that belongs to a bundle answers and
// serves containers beside the bundle's own.
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
	if err := client.Call(ctx, shimService, containersMethod, &emptypb.Empty{}, &list); err != nil {
		return false
	}
	return slices.ContainsFunc(list.Values, func(v *structpb.Value) bool { return v.GetStringValue() != p.ID })
}
