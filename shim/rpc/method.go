package rpc

import (
	"context"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
)

// Method adapts one call: it decodes the request and gives errors their gRPC
// status.
func Method[Req any, PReq interface {
	*Req
	proto.Message
}, Resp proto.Message](call func(context.Context, PReq) (Resp, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		req := PReq(new(Req))
		if err := unmarshal(req); err != nil {
			return nil, err
		}
		resp, err := call(ctx, req)
		if err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
		return resp, nil
	}
}
