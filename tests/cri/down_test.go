package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/env"
)

// lastWords waits for a file of its volume, prints 2,000 lines and ends with code 7.
var lastWords = []string{"sh", "-c", "echo begins; until [ -e /v/end ]; do sleep 0.1; done; seq 2000; touch /v/ended; exit 7"}

// A container ends while containerd is down: its exit code, its time, and all that
// it printed are known when containerd is back. (With runc its code is 255, and what
// it printed last is lost.)
func TestContainerEndsWithoutContainerd(t *testing.T) {
	if !bed.runtime.VM {
		t.Skip("runc's shim closes the FIFOs with what is unread, and containerd asks for the exit too late")
	}
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		dir := t.TempDir()
		p := runp(ctx, t, e, "down")
		id := p.start(ctx, t, lastWords, map[string]any{"mounts": []any{map[string]any{"host_path": dir, "container_path": "/v"}}})
		var ended time.Time
		err := e.Daemon.RestartAfter(ctx, func() {
			if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o644); err != nil {
				t.Error(err)
			}
			awaitFile(ctx, t, filepath.Join(dir, "ended"))
			time.Sleep(2 * time.Second) // the process ends, and the shim hears of it
			ended = time.Now()
		})
		if err != nil {
			t.Fatal(err)
		}
		awaitEngine(ctx, t, e)
		if code := p.awaitState(ctx, t, id, "CONTAINER_EXITED"); code != 7 {
			t.Errorf("exit code %d, want 7", code)
		}
		text := p.do(ctx, t, "inspect", "--output", "go-template", "--template", "{{.status.finishedAt}}", id)
		if at, err := time.Parse(time.RFC3339Nano, text); err != nil || at.After(ended) {
			t.Errorf("finished at %s (%v), want a time before containerd's start at %s", text, err, ended.UTC())
		}
		checkLastWords(ctx, t, p, id)
	})
}

// checkLastWords checks the log of lastWords.
func checkLastWords(ctx context.Context, t *testing.T, p *pod, id string) {
	t.Helper()
	var want strings.Builder
	want.WriteString("begins\n")
	for n := range 2000 {
		fmt.Fprintln(&want, n+1)
	}
	out, err := p.e.CrictlCmd(ctx, "logs", id).Output()
	if got := string(out); err != nil || got != want.String() {
		t.Errorf("the log has %d bytes, want %d (%v); it ends with %q", len(got), want.Len(), err, got[max(0, len(got)-40):])
	}
}

// awaitFile waits until a file exists.
func awaitFile(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", path, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitEngine waits until CRI answers: containerd does before.
func awaitEngine(ctx context.Context, t *testing.T, e *env.Env) {
	t.Helper()
	for {
		_, err := e.Crictl(ctx, "info")
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for CRI: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
