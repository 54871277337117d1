package virtcontainers_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// A container that was saved goes on, and loses nothing of its stdio.
func TestCheckpoint(t *testing.T) {
	net := newNetwork()
	s := saverOn(t, newHost(t), net, func(*virtcontainers.Options) {})
	layout, err := s.vm.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	delete(layout.Devices, vsock.DeviceID)
	delete(layout.Devices, "net-2")
	s.says("before ")
	s.host.Monitor.Hook(fake.StepSaveAll, func(_ context.Context, vm *fake.VM) error {
		for _, d := range vm.Devices() {
			if _, saved := layout.Devices[d.DeviceID()]; !saved {
				t.Errorf("device %s is in the machine", d.DeviceID())
			}
		}
		s.writes("meanwhile ")
		return nil
	})
	s.save()
	want := []string{"Pause pod", "Park", "Hello", "Stream pod", "Stream pod", "Stream pod", "Resume pod"}
	all := s.calls("Pause", "Park", "Hello", "Stream", "Resume")
	if diff := cmp.Diff(want, all[len(all)-len(want):]); diff != "" {
		t.Errorf("calls to the guest: %s", diff)
	}
	description, err := s.host.Monitor.Describe(s.vm.Spec)
	if err != nil {
		t.Fatal(err)
	}
	record := checkpoint.Record{
		Machine: checkpoint.Machine{
			VMM: fake.Version, Description: description, Layout: layout,
			MaxVCPUs: s.vm.Spec.MaxVCPUs, MaxMemoryMiB: s.vm.Spec.MaxMemoryMiB,
		},
		Container: checkpoint.Container{ID: sandboxID, ShareID: sandboxID, PID: 7, Mounts: map[string]string{"/": s.record().Container.Mounts["/"]}},
	}
	if diff := cmp.Diff(record, s.record(), cmpopts.IgnoreFields(checkpoint.Record{}, "Created")); diff != "" {
		t.Errorf("record: %s", diff)
	}
	if root := record.Container.Mounts["/"]; !strings.Contains(root, sandboxID) {
		t.Errorf("root file system at %q", root)
	}
	if age := time.Since(s.record().Created); age < 0 || age > patience {
		t.Errorf("made %v ago", age)
	}
	if ids := len(s.vm.Devices()); ids != len(layout.Devices)+2 {
		t.Errorf("%d devices are back, want the vsock and the NIC", ids-len(layout.Devices))
	}
	s.checkGoesOn()
}

// A checkpoint without a key has a warning in the log, one with a key has none.
func TestCheckpointWarns(t *testing.T) {
	for name, key := range map[string]bool{"without a key": false, "with a key": true} {
		t.Run(name, func(t *testing.T) {
			s := saverOn(t, newHost(t), nil, func(o *virtcontainers.Options) {
				if key {
					o.Config.Runtime.CheckpointKeyFile = keyFile(t, 32)
				}
			})
			var out bytes.Buffer
			logger := logrus.New()
			logger.SetOutput(&out)
			ctx := log.WithLogger(t.Context(), logrus.NewEntry(logger))
			if err := s.c.Checkpoint(ctx, virtcontainers.CheckpointOptions{Dir: t.TempDir()}); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "not encrypted") == key {
				t.Errorf("the log is %s", out.String())
			}
		})
	}
}

// A container can be saved several times, each time into another directory.
func TestCheckpointAgain(t *testing.T) {
	s := newSaver(t)
	s.says("one ")
	s.save()
	s.says("two ")
	s.dir = filepath.Join(t.TempDir(), "again")
	s.save()
	s.checkGoesOn()
}

// A container that the engine has paused stays paused.
func TestCheckpointOfPaused(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	if err := s.c.Pause(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	s.save()
	if state := s.c.Info().State; state != virtcontainers.Paused {
		t.Errorf("it is %s", state)
	}
	if calls := s.calls("Resume"); len(calls) != 0 {
		t.Errorf("the guest was asked: %v", calls)
	}
	if err := s.c.Resume(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	s.checkGoesOn()
}

// With Exit, a container ends once it is saved, and its sandbox.
func TestCheckpointAndExit(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	s.saveAndEnd()
	if status := statusOf(t, initOf(t, s.c)); status != virtcontainers.ExitKilled {
		t.Errorf("status %d", status)
	}
	checkNothingLeft(t, s.host)
	if calls := s.calls("Resume", "Kill"); len(calls) != 0 {
		t.Errorf("the guest was asked: %v", calls)
	}
	if _, err := s.c.Delete(t.Context()); err != nil {
		t.Errorf("delete: %v", err)
	}
	if id := s.record().Container.ID; id != sandboxID {
		t.Errorf("saved %q", id)
	}
	s.checkHeard()
}

// Calls that come while a container is saved wait, and then succeed.
func TestCallsDuringCheckpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		call func(ctx context.Context, s *saver) error
		ends string // the exit that it causes
	}{
		"update": {func(ctx context.Context, s *saver) error { return s.c.Update(ctx, nil) }, ""},
		"pause":  {func(ctx context.Context, s *saver) error { return s.c.Pause(ctx, func() {}) }, ""},
		"stats": {func(ctx context.Context, s *saver) error {
			_, err := s.c.Stats(ctx)
			return err
		}, ""},
		"kill": {func(ctx context.Context, s *saver) error {
			return initOf(s.t, s.c).Kill(ctx, uint32(unix.SIGTERM), false)
		}, "pod=143"},
		"exec": {func(ctx context.Context, s *saver) error {
			_, err := s.c.Exec(ctx, virtcontainers.ExecOptions{ID: "e1", IO: newIO(virtcontainers.Streams{})})
			return err
		}, ""},
		"create": {func(ctx context.Context, s *saver) error {
			_, err := s.Create(ctx, s.options("c2", nil), ignore)
			return err
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaver(t)
			s.says("before ")
			called := make(chan error, 1)
			s.host.Monitor.Hook(fake.StepSaveAll, func(context.Context, *fake.VM) error {
				go func() { called <- tc.call(context.Background(), s) }()
				time.Sleep(100 * time.Millisecond) // until it waits
				if len(called) > 0 {
					t.Errorf("the call did not wait: %v", <-called)
				}
				return nil
			})
			s.save()
			if err := await(t, "the call's end", called); err != nil {
				t.Error(err)
			}
			if tc.ends == "" {
				s.says("after ")
				return
			}
			s.awaitStopped()
			s.observer.expect(t, tc.ends)
			s.checkHeard()
		})
	}
}

// An exit that the guest could not report is reported afterwards.
func TestExitDuringCheckpoint(t *testing.T) {
	s := newSaver(t)
	s.host.Monitor.Hook(fake.StepSaveAll, func(context.Context, *fake.VM) error {
		eventually(t, "the end of the connections", func() bool { return s.host.Agent.Connections() == 0 })
		s.writes("last words ")
		s.exits(sandboxID, "", 5)
		return nil
	})
	s.save()
	s.awaitStopped()
	s.observer.expect(t, "pod=5")
	s.checkHeard()
}

// A container whose own exit came before it was saved does not end as one that was saved.
func TestExitBeforeCheckpointAndExit(t *testing.T) {
	s := newSaver(t)
	s.host.Agent.After("Park", func(context.Context, proto.Message) error {
		s.writes("last words ")
		s.exits(sandboxID, "", 5)
		time.Sleep(100 * time.Millisecond) // until it was heard
		return nil
	})
	err := s.c.Checkpoint(t.Context(), virtcontainers.CheckpointOptions{Dir: s.dir, Exit: true})
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("checkpoint: %v", err)
	}
	s.awaitStopped()
	s.observer.expect(t, "pod=5")
	s.checkHeard()
	if _, err := os.Stat(s.file()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

// A sandbox that is stopped while it is saved ends.
func TestStopDuringCheckpoint(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	stopped := make(chan error, 1)
	s.host.Monitor.Hook(fake.StepSaveAll, func(context.Context, *fake.VM) error {
		go func() { stopped <- s.Stop(context.Background()) }()
		time.Sleep(100 * time.Millisecond) // until it waits
		return nil
	})
	_ = s.c.Checkpoint(t.Context(), virtcontainers.CheckpointOptions{Dir: s.dir}) // either may be first
	if err := await(t, "the sandbox's end", stopped); err != nil {
		t.Error(err)
	}
	s.observer.expect(t, "pod=137")
	checkNothingLeft(t, s.host)
}

// failure is what makes a checkpoint fail, and what the error says.
type failure struct {
	harm func(t *testing.T, s *saver, net *netInMemory)
	want string
}

// A checkpoint that fails names the part, leaves no file, and has the container
// run on.
func TestCheckpointFails(t *testing.T) {
	step := func(step fake.Step) func(*testing.T, *saver, *netInMemory) {
		return func(_ *testing.T, s *saver, _ *netInMemory) { s.host.Monitor.Fail(step, errInjected) }
	}
	guest := func(method string) func(*testing.T, *saver, *netInMemory) {
		return func(_ *testing.T, s *saver, _ *netInMemory) { s.host.Agent.Fail(method, errInjected) }
	}
	// The guest has done it, and says that it has not.
	after := func(method string) func(*testing.T, *saver, *netInMemory) {
		return func(_ *testing.T, s *saver, _ *netInMemory) {
			s.host.Agent.After(method, func(context.Context, proto.Message) error { return errInjected })
		}
	}
	for name, tc := range map[string]failure{
		"freeze":  {guest("Pause"), "injected"},
		"frozen":  {after("Pause"), "injected"},
		"parked":  {after("Park"), "park its input and output: "},
		"network": {func(_ *testing.T, _ *saver, net *netInMemory) { net.unplugErr = errInjected }, "take the network from the machine: injected"},
		"NIC":     {step(fake.StepDetach), "take the network from the machine: "},
		"pause":   {step(fake.StepPause), "pause virtual machine"},
		"save":    {step(fake.StepSaveAll), "save the whole virtual machine"},
		"file in the way": {func(t *testing.T, s *saver, _ *netInMemory) {
			t.Helper()
			if err := os.WriteFile(s.dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a directory"},
		"full disk": {func(t *testing.T, s *saver, _ *netInMemory) {
			t.Helper()
			mountFull(t, s.dir)
		}, "no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			net := newNetwork()
			s := saverOn(t, newHost(t), net, func(*virtcontainers.Options) {})
			s.says("before ")
			tc.harm(t, s, net)
			s.checkFails(t.Context(), true, tc.want)
			s.checkGoesOn()
		})
	}
}

// checkFails checks that a checkpoint fails, with that in its error, and leaves no
// file.
func (s *saver) checkFails(ctx context.Context, exit bool, want string) {
	s.t.Helper()
	err := s.c.Checkpoint(ctx, virtcontainers.CheckpointOptions{Dir: s.dir, Exit: exit})
	wantError(s.t, "checkpoint", err, func(error) bool { return strings.HasPrefix(err.Error(), "checkpoint container pod: ") }, want)
	s.checkNoFile()
}

// mountFull mounts a file system without space for data.
func mountFull(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4096"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A vsock device that the guest does not release stays, with its connections.
func TestCheckpointWithoutVsockRelease(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	s.host.Monitor.Fail(fake.StepDetach, errInjected)
	s.checkFails(t.Context(), true, "take the vsock device from the machine: ")
	s.checkGoesOn()
}

// A checkpoint that the engine gives up ends, whatever hangs, and the container
// runs on.
func TestCheckpointGivenUp(t *testing.T) {
	for name, hang := range map[string]func(s *saver) <-chan struct{}{
		"vsock": func(s *saver) <-chan struct{} { return s.hangs(fake.StepDetach) },
		"save":  func(s *saver) <-chan struct{} { return s.hangs(fake.StepSaveAll) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaver(t)
			s.says("before ")
			hanging := hang(s)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-hanging
				cancel()
			}()
			s.checkFails(ctx, true, "canceled")
			s.checkGoesOn()
		})
	}
}

// Parking the stdio is not given up halfway: the guest may have done it.
func TestCheckpointGivenUpWhileParking(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	ctx, cancel := context.WithCancel(t.Context())
	s.host.Agent.Hook("Park", func(ctx context.Context, _ proto.Message) error {
		cancel()
		return ctx.Err()
	})
	s.checkFails(ctx, true, "canceled")
	s.checkGoesOn()
}

// hangs has a step of the machine wait for the end of its context, and then fail.
func (s *saver) hangs(step fake.Step) <-chan struct{} {
	hanging := make(chan struct{})
	var again atomic.Bool
	s.host.Monitor.Hook(step, func(ctx context.Context, _ *fake.VM) error {
		if again.Swap(true) {
			return errInjected
		}
		close(hanging)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	return hanging
}

// A guest that has a call to answer is not saved.
func TestCheckpointOfBusyGuest(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	entered := s.host.Agent.Hang("Update")
	calling, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.c.Update(calling, nil)
	}()
	await(t, "the call", entered)
	short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	s.checkFails(short, true, "calls to the guest are under way")
	cancel()
	<-done
	s.checkGoesOn()
}

// A guest that was asked to give up a device does so even if the caller has gone. The
// removal is awaited, and the device plugged again: otherwise the sandbox would lose its
// guest or its network later.
func TestCheckpointGivenUpWhileDetaching(t *testing.T) {
	for name, net := range map[string]*netInMemory{"vsock": nil, "NIC": newNetwork()} {
		t.Run(name, func(t *testing.T) {
			s := saverOn(t, newHost(t), net, func(*virtcontainers.Options) {})
			s.says("before ")
			had := len(s.vm.Devices())
			ctx, cancel := context.WithCancel(t.Context())
			var asked atomic.Int32
			s.host.Monitor.Hook(fake.StepDetach, func(ctx context.Context, _ *fake.VM) error {
				if asked.Add(1) > 1 {
					return nil
				}
				cancel()
				<-ctx.Done()
				return context.Cause(ctx)
			})
			s.checkFails(ctx, true, context.Canceled.Error())
			if n := len(s.vm.Detached()); n != 1 || asked.Load() != 2 {
				t.Errorf("the guest was asked %d times, and has given %v", asked.Load(), s.vm.Detached())
			}
			if has := len(s.vm.Devices()); has != had {
				t.Errorf("the machine had %d devices, and has %d", had, has)
			}
			s.checkGoesOn()
		})
	}
}

// A checkpoint does not replace another one.
func TestCheckpointExists(t *testing.T) {
	s := newSaver(t)
	s.save()
	before := s.record()
	err := s.c.Checkpoint(t.Context(), virtcontainers.CheckpointOptions{Dir: s.dir})
	wantError(t, "again", err, func(err error) bool { return errors.Is(err, os.ErrExist) }, s.file())
	if diff := cmp.Diff(before, s.record()); diff != "" {
		t.Errorf("the first one has changed: %s", diff)
	}
	s.checkGoesOn()
}

// A machine that cannot go on after it was saved is lost, and its sandbox ends, but
// not what was saved; so is one whose guest has not parked the stdio that the engine's
// end has.
func TestCheckpointLosesMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		harm    func(s *saver)
		want    string
		refused error // of Park
	}{
		"refused": {nil, "bind its input and output again", errInjected},
		"attach":  {func(s *saver) { s.host.Monitor.Fail(fake.AttachStep(hypervisor.VhostVsock{}), errInjected) }, "attach", nil},
		"resume":  {func(s *saver) { s.host.Monitor.Fail(fake.StepResume, errInjected) }, "resume virtual machine", nil},
		"relink":  {func(s *saver) { s.host.Agent.Fail("Hello", errInjected) }, "connect to the agent again", nil},
		"stdio":   {func(s *saver) { s.host.Agent.Fail(fakeguest.Stream, errInjected) }, "bind its input and output again", nil},
		"death":   {func(s *saver) { s.vm.Die(errDied) }, errDied.Error(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaver(t)
			s.says("before ")
			s.host.Agent.Hook("Park", func(context.Context, proto.Message) error {
				return tc.refused
			})
			s.host.Monitor.Hook(fake.StepSaveAll, func(context.Context, *fake.VM) error {
				tc.harm(s)
				return nil
			})
			err := s.c.Checkpoint(t.Context(), virtcontainers.CheckpointOptions{Dir: s.dir})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("checkpoint: %v, want %q", err, tc.want)
			}
			s.awaitStopped()
			s.observer.expect(t, "pod=255")
			checkNothingLeft(t, s.host)
			if _, err := s.c.Delete(t.Context()); err != nil {
				t.Errorf("delete: %v", err)
			}
			if name == "death" {
				return // whether it was complete is a matter of moments
			}
			if tc.refused != nil {
				s.checkNoFile()
			} else if record := s.record(); record.Container.ID != s.ID {
				t.Errorf("the record is that of %q", record.Container.ID)
			}
		})
	}
}

// A NIC that cannot be plugged again costs the container its network, no more.
func TestCheckpointLosesNIC(t *testing.T) {
	net := newNetwork()
	s := saverOn(t, newHost(t), net, func(*virtcontainers.Options) {})
	s.says("before ")
	s.host.Monitor.Fail(fake.AttachStep(hypervisor.NIC{}), errInjected)
	s.save()
	s.checkGoesOn()
}

// What cannot be saved is refused, and runs on.
func TestCheckpointRefusals(t *testing.T) {
	configured := func(change func(*virtcontainers.Options)) func(t *testing.T) *saver {
		return func(t *testing.T) *saver {
			t.Helper()
			return saverOn(t, newHost(t), nil, change)
		}
	}
	with := func(add func(s *saver)) func(t *testing.T) *saver {
		return func(t *testing.T) *saver {
			t.Helper()
			s := newSaver(t)
			add(s)
			return s
		}
	}
	for name, tc := range map[string]struct {
		arrange func(t *testing.T) *saver
		want    string
	}{
		"created": {func(t *testing.T) *saver {
			t.Helper()
			p := newPod(t)
			return &saver{pod: p, c: p.create(sandboxID), dir: t.TempDir()}
		}, "it is created, want running or paused"},
		"stopped": {func(t *testing.T) *saver {
			t.Helper()
			p := newPod(t)
			c := p.run("c1")
			p.exits("c1", "", 0)
			statusOf(t, initOf(t, c))
			return &saver{pod: p, c: c, dir: t.TempDir()}
		}, "it is stopped, want running or paused"},
		"with another container": {with(func(s *saver) { s.create("c2") }), "one of a pod's containers"},
		"in another sandbox": {func(t *testing.T) *saver {
			t.Helper()
			p := newPod(t)
			return &saver{pod: p, c: p.run("c1"), dir: t.TempDir()}
		}, "one of a pod's containers"},
		"with an exec":  {with(func(s *saver) { s.start(s.exec(s.c, "e1")) }), "it has the exec e1"},
		"preallocated":  {configured(func(o *virtcontainers.Options) { o.Config.Hypervisor.Memory.Prealloc = true }), "preallocated"},
		"extra monitor": {configured(func(o *virtcontainers.Options) { o.Config.Hypervisor.ExtraMonitor = "qmp" }), "an extra monitor"},
		"dumps":         {configured(func(o *virtcontainers.Options) { o.Config.Hypervisor.DumpDir = t.TempDir() }), "a directory for memory dumps"},
		"short key":     {configured(func(o *virtcontainers.Options) { o.Config.Runtime.CheckpointKeyFile = keyFile(t, 31) }), "has 31 bytes, want 32"},
		"long key":      {configured(func(o *virtcontainers.Options) { o.Config.Runtime.CheckpointKeyFile = keyFile(t, 4097) }), "has 4097 bytes"},
		"another file server": {func(t *testing.T) *saver {
			t.Helper()
			daemon := findDaemon()
			if daemon == "" {
				t.Skip("no virtiofsd is installed")
			}
			return saverOn(t, newHost(t), nil, func(o *virtcontainers.Options) { o.Config.Hypervisor.VirtioFS.Daemon = daemon })
		}, "virtio_fs_daemon"},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.arrange(t)
			before := s.c.Info()
			err := s.c.Checkpoint(t.Context(), virtcontainers.CheckpointOptions{Dir: s.dir, Exit: true})
			wantError(t, "checkpoint", err, errdefs.IsFailedPrecondition, tc.want)
			s.checkNoFile()
			if now := s.c.Info(); now != before {
				t.Errorf("the container is %+v, was %+v", now, before)
			}
			if _, err := s.host.VM().Layout(t.Context()); err != nil || s.host.VM().Paused() {
				t.Errorf("the machine is paused, %v", err)
			}
		})
	}
}

// keyFile makes a key of so many bytes.
func keyFile(t *testing.T, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat("k", size)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
