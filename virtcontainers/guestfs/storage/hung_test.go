package storage

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// A volume that does not answer fails its container in time, and no other.
func TestHungVolume(t *testing.T) {
	s := newOwnShare(t)
	hung, release := hungfs.Mount(t)
	over := errors.New("time is over")
	for what, add := range map[string]func(context.Context, string, guestspec.Bind) error{
		"in common": func(ctx context.Context, id string, b guestspec.Bind) error {
			_, _, err := s.AddVolumes(ctx, id, []guestspec.Bind{b})
			return err
		},
		"its own": func(ctx context.Context, id string, b guestspec.Bind) error {
			_, err := s.AddContainer(ctx, id, "", []guestspec.Bind{b})
			return err
		},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, over)
		ended := make(chan error, 1)
		go func() { ended <- add(ctx, "c1", guestspec.Bind{Source: hung, KeepsFlags: true}) }()
		select {
		case err := <-ended:
			if !errors.Is(err, over) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: it does not end", what)
			release()
			<-ended
		}
		cancel()
		if err := add(t.Context(), "c1", guestspec.Bind{Source: t.TempDir(), KeepsFlags: true}); err != nil {
			t.Errorf("%s: another one: %v", what, err)
		}
		remove(t, s, "c1")
	}
}

// A root file system that does not answer is given up, and removed when it does answer:
// until then its target is refused.
func TestHungRootfs(t *testing.T) {
	hung, release := hungfs.Mount(t)
	target := filepath.Join(t.TempDir(), "rootfs")
	mounts := []*types.Mount{{Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + hung + ":" + t.TempDir()}}}
	over := errors.New("time is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, over)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := MountRootfs(ctx, mounts, target)
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
	simple := []*types.Mount{{Type: "bind", Source: t.TempDir(), Options: []string{"rbind"}}}
	if _, err := MountRootfs(t.Context(), simple, target); !errdefs.IsUnavailable(err) {
		t.Errorf("at the same target: %v", err)
	}
	release()
	var err error
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
		if _, err = MountRootfs(t.Context(), simple, target); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := UnmountRootfs(target); err != nil {
		t.Error(err)
	}
}
