package service

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// statusOf returns the gRPC status of a call that mounts storages: its details
// name the one that could not be mounted.
func statusOf(err error) error {
	var failed *guest.StorageError
	st, ok := status.FromError(errgrpc.ToGRPC(err))
	if !ok || !errors.As(err, &failed) {
		return errgrpc.ToGRPC(err)
	}
	detailed, detailErr := st.WithDetails(&api.FailedStorage{Target: failed.Target})
	if detailErr != nil {
		return st.Err() // the message names it, too
	}
	return detailed.Err()
}

// validText is a ttrpc.UnaryServerInterceptor that makes the text of each error valid
// UTF-8: an error may name a file, whose name is any bytes, and ttrpc ends the whole
// connection if it cannot encode one answer.
func validText(ctx context.Context, unmarshal ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, call ttrpc.Method) (any, error) {
	resp, err := call(ctx, unmarshal)
	if err == nil || utf8.ValidString(err.Error()) {
		return resp, err
	}
	st := status.Convert(err).Proto()
	st.Message = strings.ToValidUTF8(st.GetMessage(), "?")
	return nil, status.ErrorProto(st)
}
