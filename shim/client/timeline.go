package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// ConnectSandbox connects to the shim of a running sandbox of any engine whose
// record is below root. If there is no such sandbox the error is an
// errdefs.ErrNotFound, if two engines have one with that id an
// errdefs.ErrFailedPrecondition.
func ConnectSandbox(ctx context.Context, root, id string) (*Shim, error) {
	records, err := persist.Find(root, id)
	if err != nil {
		return nil, fmt.Errorf("find sandbox %s: %w", id, err)
	}
	var running []persist.Process
	for _, r := range records {
		if r.Shim.Alive() {
			running = append(running, r.Shim)
		}
	}
	switch len(running) {
	case 0:
		return nil, fmt.Errorf("find sandbox %s: no pod of that id runs: %w", id, errdefs.ErrNotFound)
	case 1:
	default:
		return nil, fmt.Errorf("find sandbox %s: %d engines have a pod of that id: %w", id, len(running), errdefs.ErrFailedPrecondition)
	}
	// A shim's working directory is its bundle.
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(running[0].PID), "cwd"))
	if err != nil {
		return nil, fmt.Errorf("find bundle of sandbox %s: %w", id, err)
	}
	return Connect(ctx, dir)
}

// Timeline returns how the shim's sandbox and its containers started.
func (s *Shim) Timeline(ctx context.Context) (*timeline.Timeline, error) {
	var answer wrapperspb.BytesValue
	if err := s.client.Call(ctx, rpc.ShimService, rpc.TimelineMethod, &emptypb.Empty{}, &answer); err != nil {
		return nil, fmt.Errorf("ask shim for the timeline: %w", err)
	}
	return timeline.Parse(answer.Value)
}
