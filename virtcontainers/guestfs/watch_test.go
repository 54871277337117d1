package guestfs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/internal/looptest"
)

// A container's block device grows in the guest when it has grown on the host: not while
// the pod hibernates, and as long as a container has it.
func TestBlockDeviceGrows(t *testing.T) {
	for _, mounted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			logger := logrus.New()
			logger.SetOutput(&out)
			ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), logrus.NewEntry(logger)))
			var asleep atomic.Bool
			entered := 0
			p, vm, _ := newPod(t)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				p.Watch(ctx, func() (func(), bool) {
					if asleep.Load() {
						return nil, false
					}
					entered++
					return func() { entered-- }, true
				})
			}()
			pass := func() {
				time.Sleep(2 * lookEvery)
				synctest.Wait()
			}
			backing := file(t, "backing")
			dev := looptest.Over(t, backing, 0)
			pass()
			c := p.Container(requesting(t, dev, mounted))
			if err := do(t, c); err != nil {
				t.Fatal(err)
			}
			asleep.Store(true)
			looptest.Resize(t, dev, backing, 2<<20)
			pass()
			if got := vm.Grown("disk-2"); got != 0 {
				t.Errorf("mounted %v: grown to %d bytes while the pod hibernates", mounted, got)
			}
			asleep.Store(false)
			pass()
			if got := vm.Grown("disk-2"); got != 2<<20 {
				t.Errorf("mounted %v: grown to %d bytes, want %d", mounted, got, 2<<20)
			}
			looptest.Resize(t, dev, backing, 1<<20)
			pass()
			if log := out.String(); strings.Count(log, "level=warning") != 1 || !strings.Contains(log, "has become smaller") {
				t.Errorf("log:\n%s", log)
			}
			if err := c.Release(t.Context()); err != nil {
				t.Error(err)
			}
			pass()
			if left := p.raw.list(); len(left) != 0 || entered != 0 {
				t.Errorf("%d disks are left, and the machine was left %d times too few", len(left), entered)
			}
			cancel()
			<-ended
		})
	}
}

// A disk that could not be detached from the machine when its container was deleted is
// detached later.
func TestUnusedDiskIsDetachedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		monitor := new(fake.Monitor)
		p, vm, _ := newPodOn(t, monitor)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Watch(ctx, func() (func(), bool) { return func() {}, true })
		}()
		req := request(t)
		req.Bundle.Spec.Mounts = nil // A copy's watch (inotify) would keep a synctest's clock from going on.
		c := p.Container(req)
		if err := do(t, c); err != nil {
			t.Fatal(err)
		}
		injected := errors.New("injected")
		monitor.Fail(fake.StepDetach, injected)
		if err := c.Release(t.Context()); !errors.Is(err, injected) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(2 * lookEvery)
		if len(vm.Devices()) != 1 || !p.HasDisks() {
			t.Errorf("devices %v, want the disk", vm.Devices())
		}
		monitor.Fail(fake.StepDetach, nil)
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		if len(vm.Devices()) != 0 || p.HasDisks() {
			t.Errorf("devices %v, want none", vm.Devices())
		}
		cancel()
		<-ended
	})
}

// A guest that does not release a disk keeps the machine for a short time of each round:
// others can change it between two (Hibernate).
func TestHungDetachLeavesMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		monitor := new(fake.Monitor)
		p, _, _ := newPodOn(t, monitor)
		entered, left := time.Time{}, time.Now()
		rounds := 0
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Watch(ctx, func() (func(), bool) {
				rounds++
				entered = time.Now()
				if out := entered.Sub(left); out < lookEvery {
					t.Errorf("the machine is entered again after %v", out)
				}
				return func() {
					left = time.Now()
					if in := left.Sub(entered); in >= lookEvery/2 {
						t.Errorf("the machine is left after %v", in)
					}
				}, true
			})
		}()
		req := request(t)
		req.Bundle.Spec.Mounts = nil // as above
		c := p.Container(req)
		if err := do(t, c); err != nil {
			t.Fatal(err)
		}
		monitor.Hook(fake.StepDetach, func(ctx context.Context, _ *fake.VM) error {
			<-ctx.Done()
			return ctx.Err()
		})
		released, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := c.Release(released); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(10 * lookEvery)
		monitor.Hook(fake.StepDetach, nil)
		time.Sleep(2 * lookEvery)
		cancel()
		<-ended
		if rounds < 3 || p.HasDisks() {
			t.Errorf("%d rounds, and disks are left: %v", rounds, p.HasDisks())
		}
	})
}
