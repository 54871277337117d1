package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// ConnectSandbox connects to the shim of a running sandbox of any engine whose
// record is below root: the one with that id, or the only one whose id has it as a
// prefix. It fails with errdefs.ErrNotFound if there is no such sandbox, and with
// errdefs.ErrFailedPrecondition if there are several.
func ConnectSandbox(ctx context.Context, root, id string) (*Shim, error) {
	shim, err := findShim(root, id)
	if err != nil {
		return nil, fmt.Errorf("find sandbox %s: %w", id, err)
	}
	// A shim's working directory is its bundle.
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(shim.PID), "cwd"))
	if err != nil {
		return nil, fmt.Errorf("find bundle of sandbox %s: %w", id, err)
	}
	return Connect(ctx, dir)
}

// findShim returns the running shim of the sandbox that ConnectSandbox connects to.
func findShim(root, id string) (persist.Process, error) {
	records, err := persist.List(root)
	if err != nil {
		return persist.Process{}, err
	}
	running := slices.DeleteFunc(records, func(r *persist.Record) bool {
		return id == "" || !strings.HasPrefix(r.SandboxID, id) || !r.Shim.Alive()
	})
	exact := slices.DeleteFunc(slices.Clone(running), func(r *persist.Record) bool { return r.SandboxID != id })
	if len(exact) > 0 {
		running = exact
	}
	switch len(running) {
	case 0:
		return persist.Process{}, fmt.Errorf("no pod of that id runs: %w", errdefs.ErrNotFound)
	case 1:
		return running[0].Shim, nil
	}
	return persist.Process{}, fmt.Errorf("%d pods have ids with this prefix: %w", len(running), errdefs.ErrFailedPrecondition)
}

// Timeline returns how the shim's sandbox and its containers started.
func (s *Shim) Timeline(ctx context.Context) (*timeline.Timeline, error) {
	var answer wrapperspb.BytesValue
	if err := s.client.Call(ctx, rpc.ShimService, rpc.TimelineMethod, &emptypb.Empty{}, &answer); err != nil {
		return nil, fmt.Errorf("ask shim for the timeline: %w", err)
	}
	return timeline.Parse(answer.Value)
}
