package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
	"github.com/katabox/katabox/hypervisor/qemu/qmp"
)

// scripted is a machine whose QEMU is a sleeping process and a fake QMP server.
type scripted struct {
	*VM
	mu       sync.Mutex
	commands []string
}

// script makes a machine; refuse returns the error for a command ("" for
// success).
func script(t *testing.T, refuse func(command string) string) *scripted {
	t.Helper()
	return scriptAnswers(t, func(_ *qmptest.Server, r qmptest.Request) any {
		if desc := refuse(r.Execute); desc != "" {
			return &qmptest.Refusal{Class: qmp.ClassGenericError, Desc: desc}
		}
		return json.RawMessage("{}")
	})
}

// scriptAnswers makes a machine; answer returns a command's result, and may
// send events before.
func scriptAnswers(t *testing.T, answer func(*qmptest.Server, qmptest.Request) any) *scripted {
	t.Helper()
	proc, err := child.Start(child.Options{Path: "/bin/sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	conn, server := qmptest.Pair(t)
	s := &scripted{}
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Handshake()
		server.Serve(func(r qmptest.Request) any {
			s.note(r)
			defer closeAll(r.Files)
			return answer(server, r)
		})
	}()
	go func() {
		<-proc.Done()
		server.Close()
	}()
	mon := qmp.New(conn)
	if err := mon.Connect(); err != nil {
		t.Fatal(err)
	}
	s.VM = newVM(context.Background(), hypervisor.Spec{ID: "scripted"}, proc, mon, child.NewTail(10))
	t.Cleanup(func() {
		if err := s.Stop(testContext(t)); err != nil {
			t.Error(err)
		}
		<-served
	})
	return s
}

func (s *scripted) note(r qmptest.Request) {
	line := r.Execute
	if r.Arguments != nil {
		line += " " + string(r.Arguments)
	}
	if len(r.Files) > 0 {
		line += " +file"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, line)
}

func (s *scripted) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.commands...)
}

func refuseNothing(string) string { return "" }

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

const (
	getfd      = `getfd {"fdname":"fd-x"} +file`
	chardevAdd = `chardev-add {"backend":{"data":{"addr":{"data":{"str":"fd-x"},"type":"fd"},"server":false},"type":"socket"},"id":"char-x"}`
	addVsock   = `device_add {"addr":"0x1","bus":"pod","driver":"vhost-vsock-pci","guest-cid":42,"id":"x","vhostfd":"fd-x"}`
	addUser    = `device_add {"addr":"0x1","bus":"pod","chardev":"char-x","driver":"vhost-user-vsock-pci","id":"x"}`
	addShare   = `device_add {"addr":"0x1","bus":"pod","chardev":"char-x","driver":"vhost-user-fs-pci","id":"x","queue-size":1024,"tag":"kataShared"}`
)

func TestAttachCommands(t *testing.T) {
	f := devNull(t)
	vsock := hypervisor.VhostVsock{ID: "x", CID: 42, File: f}
	user := hypervisor.VhostUserVsock{ID: "x", Socket: f}
	share := hypervisor.FSShare{ID: "x", Socket: f, Tag: "kataShared", QueueSize: 1024}
	for _, tt := range []struct {
		name   string
		device hypervisor.Device
		refuse string
		want   []string
	}{
		{"vhost-vsock", vsock, "", []string{getfd, addVsock}},
		{"vhost-user-vsock", user, "", []string{getfd, chardevAdd, addUser}},
		{"share", share, "", []string{getfd, chardevAdd, addShare}},
		{"vhost-vsock, no fd", vsock, "getfd", []string{getfd}},
		{"vhost-vsock, no device", vsock, "device_add", []string{getfd, addVsock, `closefd {"fdname":"fd-x"}`}},
		{"share, no chardev", share, "chardev-add", []string{getfd, chardevAdd, `closefd {"fdname":"fd-x"}`}},
		{"share, no device", share, "device_add", []string{getfd, chardevAdd, addShare, `chardev-remove {"id":"char-x"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var lucky atomic.Bool
			vm := script(t, func(command string) string {
				if command == tt.refuse && !lucky.Load() {
					return "out of luck"
				}
				return ""
			})
			err := vm.Attach(testContext(t), tt.device)
			if (err != nil) != (tt.refuse != "") {
				t.Fatalf("Attach: %v", err)
			}
			if err != nil && (!strings.Contains(err.Error(), "out of luck") || !strings.Contains(err.Error(), `"x"`)) {
				t.Errorf("Attach: %v", err)
			}
			if diff := cmp.Diff(tt.want, vm.sent()); diff != "" {
				t.Error(diff)
			}
			// A refused device leaves its ID free, an attached one does not.
			lucky.Store(true)
			err = vm.Attach(testContext(t), tt.device)
			if tt.refuse == "" && !errdefs.IsAlreadyExists(err) || tt.refuse != "" && err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

type strange struct{ hypervisor.FSShare }

func TestAttachChecks(t *testing.T) {
	f := devNull(t)
	vm := script(t, refuseNothing)
	for name, tt := range map[string]struct {
		device hypervisor.Device
		is     func(error) bool
	}{
		"unknown kind":    {strange{hypervisor.FSShare{ID: "x"}}, errdefs.IsNotImplemented},
		"empty ID":        {hypervisor.VhostVsock{File: f}, errdefs.IsInvalidArgument},
		"ID with a comma": {hypervisor.VhostVsock{ID: "a,b", File: f}, errdefs.IsInvalidArgument},
		"long ID":         {hypervisor.VhostVsock{ID: strings.Repeat("x", 64), File: f}, errdefs.IsInvalidArgument},
		"no file":         {hypervisor.VhostVsock{ID: "x"}, errdefs.IsInvalidArgument},
		"no socket":       {hypervisor.VhostUserVsock{ID: "x"}, errdefs.IsInvalidArgument},
		"no tag":          {hypervisor.FSShare{ID: "x", Socket: f}, errdefs.IsInvalidArgument},
		"long tag":        {hypervisor.FSShare{ID: "x", Socket: f, Tag: strings.Repeat("t", 37)}, errdefs.IsInvalidArgument},
		"odd queue":       {hypervisor.FSShare{ID: "x", Socket: f, Tag: "t", QueueSize: 1000}, errdefs.IsInvalidArgument},
	} {
		if err := vm.Attach(testContext(t), tt.device); !tt.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := vm.sent(); len(got) != 0 {
		t.Errorf("QEMU was asked: %q", got)
	}
}

// If QEMU does not answer, the device is not undone and its ID is not free.
func TestAttachWithoutAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	gaveUp := make(chan struct{})
	vm := script(t, func(command string) string {
		if command == "device_add" {
			cancel()
			<-gaveUp
		}
		return ""
	})
	d := hypervisor.FSShare{ID: "x", Socket: devNull(t), Tag: "t"}
	if err := vm.Attach(ctx, d); !errors.Is(err, context.Canceled) {
		t.Errorf("Attach: %v", err)
	}
	close(gaveUp)
	if err := vm.Attach(testContext(t), d); !errdefs.IsAlreadyExists(err) {
		t.Errorf("again: %v", err)
	}
	if err := vm.Resume(testContext(t)); err != nil { // answered after everything else
		t.Fatal(err)
	}
	for _, command := range vm.sent() {
		if strings.HasPrefix(command, "chardev-remove") {
			t.Error("the chardev was removed below the device")
		}
	}
}

// Losing the QMP connection ends the machine, even if QEMU is alive.
func TestLostMonitorEndsMachine(t *testing.T) {
	vm := script(t, refuseNothing)
	_ = vm.mon.Disconnect()
	awaitDone(t, vm)
	if err := vm.Err(); err == nil || errors.Is(err, hypervisor.ErrStopped) || errors.Is(err, hypervisor.ErrPowerOff) {
		t.Errorf("Err: %v", err)
	}
}

// Only a machine with a disk is told to quit before it is killed.
func TestStopQuitsForDisks(t *testing.T) {
	for _, disk := range []bool{false, true} {
		vm := script(t, refuseNothing)
		if disk {
			vm.attachDisk(t)
		}
		if err := vm.Stop(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(vm.Err(), hypervisor.ErrStopped) {
			t.Errorf("Err: %v", vm.Err())
		}
		if quit := slices.Contains(vm.sent(), "quit"); quit != disk {
			t.Errorf("with a disk %v: quit was sent: %v", disk, quit)
		}
	}
}

// attachDisk attaches a small disk.
func (s *scripted) attachDisk(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	err := s.Attach(testContext(t), hypervisor.Disk{ID: "disk", File: openDisk(t, path, os.O_RDWR), Bus: hypervisor.VirtioBlk})
	if err != nil {
		t.Fatal(err)
	}
}

// A QEMU that does not accept the quit command is killed soon.
func TestStopOfSilentQEMU(t *testing.T) {
	vm := script(t, refuseNothing) // accepts quit and lives on
	vm.attachDisk(t)
	start := time.Now()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := vm.Stop(testContext(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if !errors.Is(vm.Err(), hypervisor.ErrStopped) {
		t.Errorf("Err: %v", vm.Err())
	}
	if took := time.Since(start); took > 25*quitGrace {
		t.Errorf("it took %v", took)
	}
	err := vm.Resume(testContext(t))
	if !errors.Is(err, hypervisor.ErrStopped) {
		t.Errorf("Resume after the end: %v", err)
	}
}
