package virtcontainers

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/katabox/katabox/hypervisor/memfile"
)

// What a hanging disk keeps in use is closed only afterwards: another file could
// have the descriptor's number by then.
func TestFilesOutliveTheirUse(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	z := &slept{memory: memfile.Files(r), image: w}
	ctx, cancel := context.WithCancelCause(t.Context())
	hangs, late := make(chan struct{}), make(chan error, 1)
	impatient := errors.New("impatient")
	cancel(impatient)
	err = z.do(ctx, func() error {
		<-hangs
		_, err := w.WriteString("late")
		late <- err
		return nil
	})
	if !errors.Is(err, impatient) {
		t.Errorf("do: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- z.close() }()
	close(hangs)
	if err := <-late; err != nil {
		t.Errorf("the file was closed under its user: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := w.WriteString("x"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}
