package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

const (
	cont          = "cont"
	deviceDel     = `device_del {"id":"x"}`
	chardevRemove = `chardev-remove {"id":"char-x"}`
)

var (
	yes      = json.RawMessage("{}")
	notFound = &qmptest.Refusal{Class: qmp.ClassDeviceNotFound, Desc: "Device 'x' not found"}
	underway = &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: "Device x is already in the process of unplug"}
)

// guest answers a device_del: what the guest does about it, and what QEMU
// returns.
type guest func(*qmptest.Server) any

func ignores(*qmptest.Server) any { return yes }

func letsGo(s *qmptest.Server) any {
	s.Send(qmptest.Event("DEVICE_DELETED", map[string]any{"path": "/machine/peripheral/x/virtio-backend"}))
	s.Send(qmptest.Event("DEVICE_DELETED", map[string]any{"device": "other", "path": "/machine/peripheral/other"}))
	s.Send(qmptest.Event("DEVICE_DELETED", map[string]any{"device": "x", "path": "/machine/peripheral/x"}))
	return yes
}

func objects(s *qmptest.Server) any {
	s.Send(qmptest.Event("DEVICE_UNPLUG_GUEST_ERROR", map[string]any{"device": "x", "path": "/machine/peripheral/x"}))
	return yes
}

func refusesWith(r *qmptest.Refusal) guest { return func(*qmptest.Server) any { return r } }

// attachedShare returns a machine with one share, whose guest answers each
// device_del with one of answers and whose QEMU answers chardev-remove with
// removed.
func attachedShare(t *testing.T, removed any, answers ...guest) *scripted {
	t.Helper()
	vm := scriptAnswers(t, func(s *qmptest.Server, r qmptest.Request) any {
		switch r.Execute {
		case "device_del":
			if len(answers) == 0 {
				t.Error("one device_del too many")
				return notFound
			}
			answer := answers[0]
			answers = answers[1:]
			return answer(s)
		case "chardev-remove":
			return removed
		}
		return yes
	})
	if err := vm.Attach(testContext(t), hypervisor.FSShare{ID: "x", Tag: "t", Socket: devNull(t)}); err != nil {
		t.Fatal(err)
	}
	resume(t, vm)
	return vm
}

// resume lets the machine run, and long enough for Detach.
func resume(t *testing.T, vm *scripted) {
	t.Helper()
	if err := vm.Resume(testContext(t)); err != nil {
		t.Fatal(err)
	}
	<-vm.ticks
}

func TestDetach(t *testing.T) {
	noChardev := &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: "Chardev 'char-x' not found"}
	busy := &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: "Chardev 'char-x' is busy"}
	for _, tt := range []struct {
		name    string
		guest   []guest
		removed any
		want    string // of the error
		sent    []string
	}{
		{"at once", []guest{letsGo}, yes, "", []string{deviceDel, chardevRemove}},
		{"went before", []guest{refusesWith(notFound)}, yes, "", []string{deviceDel, chardevRemove}},
		{"when asked again", []guest{ignores, letsGo}, yes, "", []string{deviceDel, deviceDel, chardevRemove}},
		{"asked before", []guest{refusesWith(underway), refusesWith(notFound)}, yes, "", []string{deviceDel, deviceDel, chardevRemove}},
		{"chardev went before", []guest{letsGo}, noChardev, "", []string{deviceDel, chardevRemove}},
		{"guest says no", []guest{objects}, yes, "does not release", []string{deviceDel}},
		{"QEMU says no", []guest{refusesWith(busy)}, yes, "is busy", []string{deviceDel}},
		{"chardev stays", []guest{letsGo}, busy, "is busy", []string{deviceDel, chardevRemove}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vm := attachedShare(t, tt.removed, tt.guest...)
			err := vm.Detach(testContext(t), "x")
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Detach: %v", err)
			}
			if diff := cmp.Diff(append([]string{getfd, chardevAdd, addTagged, cont}, tt.sent...), vm.sent()); diff != "" {
				t.Error(diff)
			}
			if left := errors.Is(err, hypervisor.ErrLeftover); left != (tt.name == "chardev stays") {
				t.Errorf("the device is gone, and something is left: %v", left)
			}
			if _, err := vm.PCIPath("x"); errdefs.IsNotFound(err) != (tt.want == "") {
				t.Errorf("the ID afterwards: %v", err)
			}
		})
	}
}

// addTagged attaches attachedShare's share.
const addTagged = `device_add {"addr":"0x1","bus":"pod","chardev":"char-x","driver":"vhost-user-fs-pci","id":"x","tag":"t"}`

// The wait for a guest that does nothing ends with the caller's context, and
// the guest may be asked again.
func TestDetachGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	vm := attachedShare(t, yes, func(*qmptest.Server) any {
		cancel()
		return yes
	}, letsGo)
	if err := vm.Detach(ctx, "x"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("Detach: %v", err)
	}
	if path, err := vm.PCIPath("x"); path != "01/01" || err != nil {
		t.Errorf("the device is at %q, %v", path, err)
	}
	if err := vm.Detach(testContext(t), "x"); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := vm.Detach(testContext(t), "x"); !errdefs.IsNotFound(err) {
		t.Errorf("a third time: %v", err)
	}
	if err := vm.Attach(testContext(t), hypervisor.FSShare{ID: "x", Tag: "t", Socket: devNull(t)}); err != nil {
		t.Errorf("Attach with the same ID: %v", err)
	}
}

// What is left of a device that is gone is removed even though the context has
// ended, or when another device of that ID comes.
func TestDetachFinishes(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	var keeps atomic.Bool
	vm := scriptAnswers(t, func(s *qmptest.Server, r qmptest.Request) any {
		switch r.Execute {
		case "device_del":
			return letsGo(s)
		case "chardev-remove":
			cancel()
			time.Sleep(10 * time.Millisecond) // the client could give up
			if keeps.Load() {
				return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: "Chardev 'char-x' is busy"}
			}
		}
		return yes
	})
	share := hypervisor.FSShare{ID: "x", Tag: "t", Socket: devNull(t)}
	if err := vm.Attach(testContext(t), share); err != nil {
		t.Fatal(err)
	}
	resume(t, vm)
	if err := vm.Detach(ctx, "x"); err != nil {
		t.Errorf("its context ended: %v", err)
	}
	if err := vm.Attach(testContext(t), share); err != nil {
		t.Fatal(err)
	}
	keeps.Store(true)
	if err := vm.Detach(testContext(t), "x"); !errors.Is(err, hypervisor.ErrLeftover) {
		t.Errorf("QEMU keeps a part: %v", err)
	}
	if places, err := vm.places(); err != nil || len(places) > 0 {
		t.Errorf("devices that are left: %v, %v", places, err)
	}
	if err := vm.Attach(testContext(t), share); !errors.Is(err, hypervisor.ErrLeftover) {
		t.Errorf("Attach while QEMU keeps a part: %v", err)
	}
	keeps.Store(false)
	if err := vm.Attach(testContext(t), share); err != nil {
		t.Errorf("Attach: %v", err)
	}
	if err := vm.Attach(testContext(t), share); !errdefs.IsAlreadyExists(err) {
		t.Errorf("Attach again: %v", err)
	}
}

// QEMU is not asked to remove a device of a machine that has not run: it would
// refuse a second request.
func TestDetachFromNewMachine(t *testing.T) {
	vm := script(t, refuseNothing)
	if err := vm.Attach(testContext(t), hypervisor.FSShare{ID: "x", Tag: "t", Socket: devNull(t)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := vm.Detach(testContext(t), "x"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("Detach: %v", err)
		}
	}
	if diff := cmp.Diff([]string{getfd, chardevAdd, addTagged}, vm.sent()); diff != "" {
		t.Error(diff)
	}
}

// Two calls never work on one device concurrently.
func TestDetachWhileDetaching(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	vm := attachedShare(t, yes, func(s *qmptest.Server) any {
		close(asked)
		<-goOn
		return letsGo(s)
	})
	first := make(chan error, 1)
	go func() { first <- vm.Detach(testContext(t), "x") }()
	<-asked
	if err := vm.Detach(testContext(t), "x"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a second Detach meanwhile: %v", err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// The machine's end ends the wait, and is the error's cause.
func TestDetachOfDyingMachine(t *testing.T) {
	asked := make(chan struct{})
	vm := attachedShare(t, yes, func(*qmptest.Server) any {
		close(asked)
		return yes
	})
	detached := make(chan error, 1)
	go func() { detached <- vm.Detach(testContext(t), "x") }()
	<-asked
	if err := vm.proc.Signal(os.Kill); err != nil {
		t.Error(err)
	}
	if err := <-detached; !errors.Is(err, errDied) {
		t.Errorf("Detach: %v", err)
	}
}

// A device whose state is unknown can be removed, with everything that it left.
func TestDetachAfterAttachWithoutAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	gaveUp := make(chan struct{})
	vm := scriptAnswers(t, func(_ *qmptest.Server, r qmptest.Request) any {
		switch r.Execute {
		case "device_add":
			cancel()
			<-gaveUp
		case "device_del":
			return notFound
		case "closefd":
			return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: "File descriptor named 'fd-x' not found"}
		}
		return yes
	})
	d := hypervisor.FSShare{ID: "x", Tag: "t", Socket: devNull(t)}
	if err := vm.Attach(ctx, d); !errors.Is(err, context.Canceled) {
		t.Errorf("Attach: %v", err)
	}
	close(gaveUp)
	resume(t, vm)
	if err := vm.Detach(testContext(t), "x"); err != nil {
		t.Error(err)
	}
	want := []string{getfd, chardevAdd, addTagged, cont, deviceDel, chardevRemove, `closefd {"fdname":"fd-x"}`}
	if diff := cmp.Diff(want, vm.sent()); diff != "" {
		t.Error(diff)
	}
}
