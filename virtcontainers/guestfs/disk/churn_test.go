package disk

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
)

// Many concurrent users, with a machine that sometimes fails, leave no disk and
// no entry behind.
func TestChurn(t *testing.T) {
	m := new(fake.Monitor)
	made, err := m.Launch(t.Context(), hypervisor.Spec{ID: "s1"})
	if err == nil {
		err = made.Resume(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	vm := made.(*fake.VM)
	sometimes := func(context.Context, *fake.VM) error {
		if rand.IntN(4) == 0 {
			return errors.New("injected")
		}
		return nil
	}
	m.Hook(fake.StepAttach, sometimes)
	m.Hook(fake.StepDetach, sometimes)
	p := NewPool(vm, Options{Bus: hypervisor.VirtioSCSI})
	var all sync.WaitGroup
	for i := range 3 {
		path := filepath.Join(t.TempDir(), strconv.Itoa(i))
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			all.Go(func() { churn(t, p, path) })
		}
	}
	all.Wait()
	// A failed attempt may have left disks, because their removal failed too.
	for range 100 {
		p.DetachUnused(t.Context())
	}
	if len(p.disks) != 0 || len(p.users) != 0 {
		t.Errorf("remembered: %d disks, %d users", len(p.disks), len(p.users))
	}
	for _, d := range vm.Devices() {
		t.Errorf("attached: %s", d.DeviceID())
	}
}

// churn uses and releases a disk many times, until each release succeeds.
func churn(t *testing.T, p *Pool, path string) {
	t.Helper()
	for range 50 {
		d, err := p.Use(t.Context(), Source{Path: path, ReadOnly: rand.IntN(2) == 0})
		if err != nil {
			if errdefs.IsNotFound(err) {
				t.Error(err)
			}
			continue
		}
		for err = p.Release(t.Context(), d); err != nil; {
			err = p.Release(t.Context(), d)
		}
	}
}
