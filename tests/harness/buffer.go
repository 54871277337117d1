package harness

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Buffer collects a process's output; it may be read while it grows.
type Buffer struct {
	// mu guards data.
	mu   sync.Mutex
	data bytes.Buffer
}

// Write appends p; it never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

// String returns what has come so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// Await waits until the output holds text, or ctx ends.
func (b *Buffer) Await(ctx context.Context, text string) error {
	for !strings.Contains(b.String(), text) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for output %q: %w; so far: %q", text, ctx.Err(), b.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
