package storage

import (
	"context"
	"errors"
	"testing"
	"time"

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
