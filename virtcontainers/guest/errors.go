package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

// disconnects are the errors of a connection that ended; a transport without a
// machine returns ENODEV.
var disconnects = []error{
	ttrpc.ErrClosed, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, syscall.ENODEV,
}

// Disconnected reports whether a call or a stream failed because the connection
// to the guest ended.
func Disconnected(err error) bool {
	return slices.ContainsFunc(disconnects, func(end error) bool { return errors.Is(err, end) })
}

// Unanswered reports whether a call made with ctx failed because its time was
// up. The guest's server knows the deadline, and may answer that it has passed a
// moment before ctx does.
func Unanswered(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errdefs.IsDeadlineExceeded(Err(err)))
}

// StorageError is an error of the agent's about one of the storages that a call
// was to mount.
type StorageError struct {
	// Target is the storage's target as the agent sent it: any string of at
	// most maxError bytes.
	Target string
	err    error
}

// Error implements error.
func (e *StorageError) Error() string { return e.err.Error() }

// Unwrap returns the error with its errdefs kind.
func (e *StorageError) Unwrap() error { return e.err }

// maxError bounds an agent's error, in bytes of its gRPC status: it goes to the
// engine and into logs, and a call's answer may be 4 MiB.
const maxError = 16 << 10

// Err gives the error of a call to the agent its errdefs kind, and makes it a
// StorageError if the agent names a storage. An error that is not the agent's
// answer is returned unchanged.
func Err(err error) error {
	if err == nil || Disconnected(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	failed, err := takeStorage(bounded(err))
	err = errgrpc.ToNative(err)
	if failed == nil {
		return err
	}
	return &StorageError{Target: failed.GetTarget(), err: err}
}

// takeStorage returns the first api.FailedStorage detail of a status, and the status
// without details: they repeat parts of its text, which errgrpc would append in
// lines of their own ("...: invalid argument\ninvalid argument").
func takeStorage(err error) (failed *api.FailedStorage, rest error) {
	st, ok := status.FromError(err)
	if !ok {
		return nil, err
	}
	for _, detail := range st.Proto().GetDetails() {
		found := new(api.FailedStorage)
		if detail.MessageIs(found) && detail.UnmarshalTo(found) == nil {
			failed = found
			break
		}
	}
	return failed, status.Error(st.Code(), st.Message())
}

// bounded cuts the message of a status that is too large, and drops its
// details.
func bounded(err error) error {
	st, ok := status.FromError(err)
	if !ok || proto.Size(st.Proto()) <= maxError {
		return err
	}
	const omitted = " [cut]"
	message := st.Message()
	message = strings.ToValidUTF8(message[:min(len(message), maxError-len(omitted))], "") + omitted
	return status.Error(st.Code(), message)
}
