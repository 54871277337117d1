package vhostuser

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

// truncated returns a mapping of a file that no longer has pages.
func truncated(t *testing.T) []byte {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(data) })
	if err := file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestFaultIsAnError(t *testing.T) {
	data := truncated(t)
	for name, touch := range map[string]func() error{
		"read":  func() error { return errors.New(string(data[4096:4097])) },
		"write": func() error { data[0] = 1; return nil },
		"copy":  func() error { copy(make([]byte, 8192), data); return nil },
		"fill":  func() error { copy(data, make([]byte, 8192)); return nil },
		"word":  func() error { *word(data) = 1; return nil },
	} {
		if err := guarded(touch); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "is gone") {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := errors.New("its own")
	if err := guarded(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("an error becomes %v", err)
	}
}

// Bugs in our own code are not hidden.
func TestOtherPanicsGoOn(t *testing.T) {
	var none *memory
	for name, f := range map[string]func() error{
		"panic": func() error { panic("mine") },
		"nil":   func() error { return errors.New(string(rune(len(none.segments)))) },
		"index": func() error { return errors.New(string(make([]byte, 1)[len(os.Args):][5])) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: swallowed", name)
				}
			}()
			_ = guarded(f)
		}()
	}
}

// TestMemoryGoes removes the memory under a running queue, as a compromised VMM
// can: the queue breaks, and works again with new memory.
func TestMemoryGoes(t *testing.T) {
	both(t, func(t *testing.T, owner Owner) {
		d := newReverser(owner)
		f, ended := serve(t, d)
		f.Handshake()
		gone := vhosttest.NewMemory(t, 0)
		if !f.Set(vhosttest.SetMemTable, gone.Table(), gone.FD()) {
			t.Fatal("memory that can shrink is refused")
		}
		sealed := f.Mem
		f.Mem = gone
		q := f.NewQueue(0, 8)
		q.Start(0)
		if got := roundTrip(t, f, q, "one"); got != "eno" {
			t.Fatalf("got %q", got)
		}
		if err := unix.Ftruncate(gone.FD(), 0); err != nil {
			t.Fatal(err)
		}
		q.Kick()
		select {
		case <-d.broken:
		case <-time.After(20 * time.Second):
			t.Fatal("the queue has not broken")
		}
		f.Mem = sealed
		if !f.Set(vhosttest.SetMemTable, sealed.Table(), sealed.FD()) {
			t.Fatal("other memory is refused")
		}
		q = f.NewQueue(1, 8)
		q.Start(0)
		if got := roundTrip(t, f, q, "two"); got != "owt" {
			t.Errorf("got %q", got)
		}
		f.Close()
		if err := await(t, ended); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}
