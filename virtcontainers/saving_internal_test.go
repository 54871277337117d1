package virtcontainers

import (
	"errors"
	"os"
	"testing"

	"github.com/containerd/errdefs"
)

// A state without an end is given up, and its writer sees that.
func TestEndlessState(t *testing.T) {
	w := &saving{most: 1 << 20}
	if err := w.create(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	state, machine, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	written := make(chan error, 1)
	go func() { written <- errors.Join(w.write(state), state.Close()) }()
	block, sent := make([]byte, 64<<10), 0
	for err = nil; err == nil; sent += len(block) {
		if sent > 4<<20 {
			t.Fatal("all of it is taken")
		}
		_, err = machine.Write(block)
	}
	if err := <-written; !errdefs.IsResourceExhausted(err) {
		t.Errorf("%v", err)
	}
}
