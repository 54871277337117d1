package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/katabox/katabox/tests/cri/env"
)

const (
	churnBatches = 4
	churnAtOnce  = 5
)

// Pods that are made and removed concurrently leave nothing: no process, mount,
// network namespace, link, lease or rule.
func TestChurn(t *testing.T) {
	within(t, 10*time.Minute, func(ctx context.Context, t *testing.T, e *env.Env) {
		dir := t.TempDir()
		for batch := range churnBatches {
			var group errgroup.Group
			for i := range churnAtOnce {
				group.Go(func() error { return runAndRemove(ctx, e, dir, fmt.Sprintf("churn-%d-%d", batch, i)) })
			}
			if err := group.Wait(); err != nil {
				t.Fatalf("batch %d: %v", batch, err)
			}
			if err := e.Settled(ctx); err != nil {
				t.Fatalf("after batch %d: %v", batch, err)
			}
		}
	})
}

// runAndRemove runs a pod from creation to removal.
func runAndRemove(ctx context.Context, e *env.Env, dir, name string) error {
	config := filepath.Join(dir, name+".json")
	text := fmt.Sprintf(podConfig, name, e.Daemon.NewID(name), filepath.Join(dir, name), "")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	id, err := e.Crictl(ctx, "runp", "--runtime", bed.runtime.Name, config)
	if err != nil {
		return err
	}
	if _, err := e.Crictl(ctx, "stopp", id); err != nil {
		return err
	}
	_, err = e.Crictl(ctx, "rmp", id)
	return err
}
