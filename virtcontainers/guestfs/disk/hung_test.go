package disk_test

import (
	"context"
	"errors"
	"os"
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
	hung, _ := hungfs.Mount(t)
	inTime(t, func(ctx context.Context) error {
		_, err := p.Use(ctx, disk.Source{Path: filepath.Join(hung, "disk")})
		return err
	})
}

// A disk whose path hangs by now is not grown, and can be released.
func TestHungGrow(t *testing.T) {
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI})
	path := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file(t, "image"), path); err != nil {
		t.Fatal(err)
	}
	d := use(t, p, disk.Source{Path: path})
	hung, _ := hungfs.Mount(t)
	if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(hung, "disk"), path)); err != nil {
		t.Fatal(err)
	}
	inTime(t, func(ctx context.Context) error {
		_, err := p.Grow(ctx, d, 1<<20)
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.Release(ctx, d); err != nil {
		t.Error(err)
	}
	checkAttached(t, vm)
}

// inTime checks that a call that hangs ends with its context, and with its cause.
func inTime(t *testing.T, call func(context.Context) error) {
	t.Helper()
	over := errors.New("time is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, over)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	select {
	case err := <-ended:
		if !errors.Is(err, over) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}
