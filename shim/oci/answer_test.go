package oci

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"github.com/containerd/log"

	"github.com/katabox/katabox/shim/client"
)

// lockedBuffer may be written to by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex // guards the buffer
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// An undo writes nothing to the standard error that the engine reads: the answer to its
// last question is waited for.
func TestUndoIsQuiet(t *testing.T) {
	r := newRuntime(t)
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	shim, err := client.Connect(t.Context(), r.dir("c1"))
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	var said lockedBuffer
	log.L.Logger.SetOutput(&said)
	defer log.L.Logger.SetOutput(os.Stderr)
	for range 200 {
		answering, stop := r.whileAnswering(t.Context(), shim, "none")
		if err := killAndDelete(answering, shim, "none"); err != nil {
			t.Error(err)
		}
		stop()
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	reap(t, pid)
	said.mu.Lock()
	defer said.mu.Unlock()
	if said.Len() > 0 {
		t.Errorf("it says %.300s", said.String())
	}
}
