package storage

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// A share that this process serves needs no daemon, and leaves nothing.
func TestOwnServer(t *testing.T) {
	if unix.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	s, err := OpenShare(t.Context(), ShareOptions{ID: "pod", Scratch: t.TempDir(), Tag: "t", Cache: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	if s.PID() != 0 {
		t.Errorf("pid %d", s.PID())
	}
	if _, err := s.AddContainer("c1", tree(t), []guestspec.Bind{{Index: 0, Source: tree(t)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveContainer("c1"); err != nil {
		t.Error(err)
	}
	checkEmpty(t, s, "c1")
	for range 2 {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-s.Done():
	default:
		t.Error("a closed share is still served")
	}
}

func TestPolicies(t *testing.T) {
	for _, test := range []struct {
		cache, where string
		keep, direct bool
	}{
		{"auto", "", false, false},
		{"auto", "c1/rootfs", true, false},
		{"auto", "c1/rootfs/mnt", false, false},
		{"auto", "c1/mounts/0", false, false},
		{"auto", "sandbox-mounts/rootfs", false, false},
		{"always", "c1/mounts/0", true, false},
		{"metadata", "c1/mounts/0", false, true},
		{"metadata", "c1/rootfs", true, false},
		{"never", "c1/rootfs", false, true},
	} {
		p := policyOf(test.cache)(test.where)
		if p.Keep != test.keep || p.Direct != test.direct {
			t.Errorf("%s %q: keep %v, direct %v", test.cache, test.where, p.Keep, p.Direct)
		}
	}
}
