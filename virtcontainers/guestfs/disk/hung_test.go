package disk_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

// A disk on a file system that does not answer is given up in time.
func TestHungDisk(t *testing.T) {
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI})
	hung, release := hungfs.Mount(t)
	over := errors.New("time is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, over)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := p.Use(ctx, disk.Source{Path: filepath.Join(hung, "disk")})
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, over) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
	release()
}
