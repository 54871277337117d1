package storage

import (
	"context"
	"errors"
	"os"
	"path"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// An output's file is where the guest is told, the guest can write a bounded amount to it,
// and it is gone when it is closed.
func TestOutputs(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *Share{"own server": newOwnShare, "daemon": newShare} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			first, err := s.NewOutput()
			if err != nil {
				t.Fatal(err)
			}
			second, err := s.NewOutput()
			if err != nil {
				t.Fatal(err)
			}
			if first.GuestPath() == second.GuestPath() || path.Dir(first.GuestPath()) != path.Join(api.GuestSharedDir, outputsName) {
				t.Errorf("the files are %s and %s", first.GuestPath(), second.GuestPath())
			}
			inGuest := s.dir(path.Join(outputsName, path.Base(first.GuestPath())))
			write := func() (total int, err error) {
				f, err := os.OpenFile(inGuest, os.O_WRONLY, 0)
				if err != nil {
					return 0, err
				}
				defer f.Close()
				block := make([]byte, 1<<20)
				copy(block, "output")
				for err == nil && total < 1<<30 {
					var n int
					n, err = f.Write(block)
					total += n
				}
				return total, err
			}
			var total int
			err = s.space.do(t.Context(), func() (err error) {
				total, err = write()
				return err
			})
			if !errors.Is(err, unix.ENOSPC) || total < 16<<20 || total > 64<<20 {
				t.Errorf("%d bytes could be written: %v", total, err)
			}
			got := make([]byte, 6)
			if _, err := first.ReadAt(got, 0); err != nil || string(got) != "output" {
				t.Errorf("the host reads %q, %v", got, err)
			}
			for range 2 {
				if err := first.Close(); err != nil {
					t.Error(err)
				}
			}
			err = s.space.do(t.Context(), func() error {
				_, err := os.Stat(inGuest)
				return err
			})
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a closed file is there: %v", err)
			}
			if err := second.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the guest has left in a file can be read when the share is gone.
func TestOutputOutlivesItsShare(t *testing.T) {
	s := newOwnShare(t)
	o, err := s.NewOutput()
	if err != nil {
		t.Fatal(err)
	}
	err = s.space.do(t.Context(), func() error {
		return os.WriteFile(s.dir(path.Join(outputsName, path.Base(o.GuestPath()))), []byte("late"), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := o.ReadAt(got, 0); err != nil || string(got) != "late" {
		t.Errorf("%q, %v", got, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.NewOutput(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a file in a closed share: %v", err)
	}
}
