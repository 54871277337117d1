package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// dialTimeout bounds the connection to a socket of this host.
const dialTimeout = 10 * time.Second

// Shim is a connection to a running shim. Its calls may be made from several
// goroutines; their errors are of errdefs' kinds. A call fails with
// errdefs.ErrUnavailable if its answer is lost because the shim has ended.
type Shim struct {
	task.TTRPCTaskService
	client *ttrpc.Client
}

// Connect connects to the shim whose address is in the bundle. It fails with
// errdefs.ErrUnavailable if the shim has ended, and with errdefs.ErrNotFound for a
// bundle without an address. Any other error says nothing about the shim: its
// backlog may be full, or this process may be out of descriptors.
func Connect(ctx context.Context, dir string) (*Shim, error) {
	address, err := bundle.Address(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("connect to shim: %w: %w", err, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to shim: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(address, bundle.AddressScheme))
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("connect to shim: %w: %w", err, errdefs.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to shim: %w", err)
	}
	c := ttrpc.NewClient(conn, ttrpc.WithUnaryClientInterceptor(nativeErrors))
	return &Shim{TTRPCTaskService: task.NewTTRPCTaskClient(c), client: c}, nil
}

// Close ends the connection. The shim keeps running;
// engine.Policy.WaiterOwnsProcess says what happens to a Wait in progress.
func (s *Shim) Close() error { return s.client.Close() }

// nativeErrors converts the errors of each call to errdefs' kinds.
func nativeErrors(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
	err := invoke(ctx, req, resp)
	switch {
	case err == nil && resp.GetStatus().GetCode() == int32(codes.OK):
		return nil
	case err == nil:
		return errgrpc.ToNative(status.ErrorProto(resp.Status))
	}
	return callError(ctx, req.Method, err)
}

// callError describes the failure of a call that has no answer.
func callError(ctx context.Context, method string, err error) error {
	switch {
	case errors.Is(err, ttrpc.ErrClosed):
		return fmt.Errorf("the shim has ended: %w", errdefs.ErrUnavailable)
	case ctx.Err() != nil:
		return fmt.Errorf("shim's answer to %s: %w", method, context.Cause(ctx))
	}
	return err
}

// Shutdown asks the shim to end if it has no container left, and waits until it
// has ended. It is not an error if the shim has containers and keeps running.
func (s *Shim) Shutdown(ctx context.Context, id string) error {
	connected, err := s.Connect(ctx, &task.ConnectRequest{ID: id})
	if errdefs.IsUnavailable(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shut shim down: %w", err)
	}
	pid := int(connected.ShimPid)
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shut shim down: watch process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	ends, err := s.requestEnd(ctx, id)
	if errdefs.IsNotImplemented(err) {
		ends, err = olderIsEnding(pid), nil
	}
	if err != nil {
		return fmt.Errorf("shut shim down: %w", err)
	}
	if !ends {
		return nil
	}
	_ = s.Close() // a shim that ends waits a moment for its clients to disconnect
	return awaitEnd(ctx, fd)
}

// requestEnd asks the shim to end, and reports whether it does. It may end before its
// answer is sent.
func (s *Shim) requestEnd(ctx context.Context, id string) (ends bool, err error) {
	_, err = s.TTRPCTaskService.Shutdown(ctx, &task.ShutdownRequest{ID: id})
	if err == nil {
		var ending wrapperspb.BoolValue
		err = s.client.Call(ctx, rpc.ShimService, rpc.EndingMethod, &emptypb.Empty{}, &ending)
		ends = ending.Value
	}
	if errdefs.IsUnavailable(err) {
		return true, nil
	}
	return ends, err
}

// olderIsEnding reports whether a shim ends that started before EndingMethod existed. Its
// working directory is the bundle of its first container, and has a mark then, unless the
// bundle is removed.
func olderIsEnding(pid int) bool {
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	return err != nil || bundle.ShimIsEnding(dir)
}

// awaitEnd waits for the end of the process that a pidfd names.
func awaitEnd(ctx context.Context, pidfd int) error {
	const round = 100 * time.Millisecond // between two checks of ctx
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(round.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for shim's end: %w", err)
		}
		if n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for shim's end: %w", context.Cause(ctx))
		}
	}
}
