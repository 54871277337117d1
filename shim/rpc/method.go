package rpc

import (
	"context"
	"strings"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Method adapts one call: it decodes the request and converts errors to gRPC
// statuses.
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
			return nil, toGRPC(err)
		}
		return resp, nil
	}
}

// toGRPC converts an error to a gRPC status with its text once: errgrpc sends the
// parts of an error that wraps several as details, which the receiver would
// append to the text ("...: invalid argument\ninvalid argument"). The text is made
// valid UTF-8: an error may name a file, whose name is any bytes, and ttrpc ends the
// engine's connection, with all its calls, if it cannot encode one answer.
func toGRPC(err error) error {
	st := status.Convert(errgrpc.ToGRPC(err))
	return status.Error(st.Code(), strings.ToValidUTF8(st.Message(), "?"))
}
