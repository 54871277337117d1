package bundle

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/internal/intime"
)

func shmAt(source string) *Bundle {
	return &Bundle{Spec: &specs.Spec{Mounts: []specs.Mount{{Destination: "/dev/shm", Type: "bind", Source: source}}}}
}

func TestShmBytes(t *testing.T) {
	for _, b := range []*Bundle{{Spec: new(specs.Spec)}, shmAt("/proc"), shmAt("/nowhere/at/all")} {
		if n, err := b.ShmBytes(t.Context()); n != 0 || err != nil {
			t.Errorf("%v: %d, %v", b.Spec.Mounts, n, err)
		}
	}
}

// A /dev/shm whose source hangs is given up with the call.
func TestShmHangs(t *testing.T) {
	hung, release := hungfs.Mount(t)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	read := make(chan error, 1)
	go func() {
		_, err := shmAt(hung).ShmBytes(ctx)
		read <- err
	}()
	select {
	case err := <-read:
		if !errors.Is(err, intime.ErrUnanswered) || !strings.Contains(err.Error(), hung) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the call is not given up")
	}
}
