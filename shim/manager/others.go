package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// askTimeout bounds a request to a shim: a shim that does not answer serves no
// containers.
const askTimeout = 2 * time.Second

// registerShim registers methods that engines do not call: which containers the
// shim serves, as a list of ids, so that "delete" of one, which is another
// process, knows whether the shim is still needed; and, for kata-runtime, how
// they started, as JSON, and whether the shim ends.
func (d *daemon) registerShim(server *ttrpc.Server) {
	server.RegisterService(rpc.ShimService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		rpc.ContainersMethod: rpc.Method(func(context.Context, *emptypb.Empty) (*structpb.ListValue, error) {
			list := new(structpb.ListValue)
			for _, id := range d.service.ContainerIDs() {
				list.Values = append(list.Values, structpb.NewStringValue(id))
			}
			return list, nil
		}),
		rpc.TimelineMethod: rpc.Method(func(ctx context.Context, _ *emptypb.Empty) (*wrapperspb.BytesValue, error) {
			t, err := d.service.Timeline(ctx)
			if err != nil {
				return nil, err
			}
			data, err := json.Marshal(t)
			if err != nil {
				return nil, fmt.Errorf("encode timeline: %w", err)
			}
			return wrapperspb.Bytes(data), nil
		}),
		rpc.EndingMethod: rpc.Method(func(context.Context, *emptypb.Empty) (*wrapperspb.BoolValue, error) {
			return wrapperspb.Bool(d.isEnding()), nil
		}),
	}})
}

// liveShim is a shim that answers.
type liveShim struct {
	client *ttrpc.Client
	// ids are those of its containers.
	ids []string
}

// findShim returns the shim that serves a container's pod, or nil if none answers.
func findShim(p *Params, sandboxID string) *liveShim {
	address, err := shimAddress(p, sandboxID)
	if err != nil {
		return nil
	}
	conn, err := net.DialTimeout("unix", socketPath(address), askTimeout)
	if err != nil {
		return nil
	}
	s := &liveShim{client: ttrpc.NewClient(conn)}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var list structpb.ListValue
	if err := s.client.Call(ctx, rpc.ShimService, rpc.ContainersMethod, &emptypb.Empty{}, &list); err != nil {
		s.close()
		return nil
	}
	for _, v := range list.Values {
		s.ids = append(s.ids, v.GetStringValue())
	}
	return s
}

// shimAddress reads the shim's address from the container's bundle or, if start
// was not called for that (containerd's sandbox API), from the sandbox's.
func shimAddress(p *Params, sandboxID string) (string, error) {
	address, err := bundle.Address(p.Bundle)
	if err == nil || sandboxID == p.ID {
		return address, err
	}
	dir, err := sandboxBundle(p, sandboxID)
	if err != nil {
		return "", err
	}
	return bundle.Address(dir)
}

func (s *liveShim) close() {
	if s != nil {
		_ = s.client.Close()
	}
}

// serves reports whether the shim has the container.
func (s *liveShim) serves(id string) bool { return s != nil && slices.Contains(s.ids, id) }

// servesOnlyOthers reports whether the shim has containers, and not this one.
func (s *liveShim) servesOnlyOthers(id string) bool {
	return s != nil && len(s.ids) > 0 && !s.serves(id)
}

// end kills a container and deletes it, and returns the pid that it had. It is no
// error if the shim does the same meanwhile. The shim ends if it has no other
// container.
func (s *liveShim) end(id string, end time.Time) (int, error) {
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	service := api.NewTTRPCTaskClient(s.client)
	_, err := service.Kill(ctx, &api.KillRequest{ID: id, Signal: uint32(unix.SIGKILL), All: true})
	if err = unlessGone(err); err != nil {
		return 0, fmt.Errorf("kill container %s: %w", id, err)
	}
	_, err = service.Wait(ctx, &api.WaitRequest{ID: id})
	if err = unlessGone(err); err != nil {
		return 0, fmt.Errorf("wait for the end of container %s: %w", id, err)
	}
	deleted, err := service.Delete(ctx, &api.DeleteRequest{ID: id})
	if err = unlessGone(err); err != nil {
		return 0, fmt.Errorf("delete container %s: %w", id, err)
	}
	if _, err := service.Shutdown(ctx, &api.ShutdownRequest{ID: id}); unlessGone(err) != nil {
		return 0, fmt.Errorf("end the shim of container %s: %w", id, err)
	}
	return int(deleted.GetPid()), nil
}

// dismiss lets the shim end by itself if it serves no container. The caller kills one
// that has not begun to at the time end.
func (s *liveShim) dismiss(id string, end time.Time) {
	if s == nil || len(s.ids) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(askTimeout, time.Until(end)))
	defer cancel()
	_, _ = api.NewTTRPCTaskClient(s.client).Shutdown(ctx, &api.ShutdownRequest{ID: id})
}

// unlessGone returns a call's error, unless the container or the shim is gone.
func unlessGone(err error) error {
	if errors.Is(err, ttrpc.ErrClosed) {
		return nil
	}
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
