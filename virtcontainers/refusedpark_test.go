package virtcontainers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
)

// unread is an IO whose output the engine does not read.
type unread struct{ *testIO }

// Park implements virtcontainers.IO.
func (unread) Park(context.Context) (uint64, bool, error) {
	return 0, false, fmt.Errorf("its output is not read: %w", errdefs.ErrFailedPrecondition)
}

// A container whose stdio cannot be parked runs on, with the stdio that it has.
func TestCheckpointWithoutPark(t *testing.T) {
	p, io, dir := newPod(t), newIO(allStreams), t.TempDir()
	c, err := p.Create(t.Context(), p.options(sandboxID, unread{io}), ignore)
	if err != nil {
		t.Fatal(err)
	}
	p.start(initOf(t, c))
	if err := c.Checkpoint(t.Context(), virtcontainers.CheckpointOptions{Dir: dir}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Checkpoint: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, checkpoint.File)); err == nil {
		t.Error("a file is left")
	}
	calls := p.host.Agent.Calls()
	for _, call := range calls[slices.Index(calls, "Pause "+sandboxID)+1:] {
		if strings.HasPrefix(call, "Stream") {
			t.Errorf("a stream was opened again: %s", call)
		}
	}
	if err := p.host.Agent.Write(sandboxID, "", "after"); err != nil {
		t.Error(err)
	}
	eventually(t, "output", func() bool {
		stdout, _ := io.output()
		return stdout == "after"
	})
	p.exits(sandboxID, "", 3)
	p.awaitStopped()
	p.observer.expect(t, sandboxID+"=3")
}
