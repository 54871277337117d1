package manager

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/log"
)

// Lines that a guest causes, as fast as it likes, leave room for the shim's own.
func TestForeignLinesLeaveRoom(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for name, write := range map[string]func(ctx context.Context){
		"agent": func(ctx context.Context) { log.G(ctx).WithField("source", "agent").Info(long) },
		"QEMU":  func(ctx context.Context) { log.G(ctx).WithField("source", "qemu").Warn(long) },
		"ttrpc": func(ctx context.Context) {
			log.G(ctx).WithField("stream", long).Error("ttrpc: received message on inactive stream")
		},
	} {
		t.Run(name, func(t *testing.T) {
			keepLevel(t)
			dir := t.TempDir()
			path := filepath.Join(dir, logFile)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, err := OpenLog(ownLogger(), &Params{ID: "pod", Bundle: dir})
			if err != nil {
				t.Fatal(err)
			}
			var writers sync.WaitGroup
			for range 2 {
				writers.Go(func() {
					for range logBurst / len(long) {
						write(ctx)
					}
				})
			}
			writers.Wait()
			log.G(ctx).Info("the shim's own")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(text, []byte("the shim's own")) || !bytes.Contains(text, []byte("were left out")) {
				t.Errorf("%d bytes of log end with %q", len(text), text[max(0, len(text)-300):])
			}
			if len(text) > foreignBurst*5/4 {
				t.Errorf("%d bytes of the guest's lines were logged at once", len(text))
			}
		})
	}
}
