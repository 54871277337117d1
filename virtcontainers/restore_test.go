package virtcontainers_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// restoration is a container that is about to continue from a saved one.
type restoration struct {
	id        string
	dir       string
	config    *config.Config
	container virtcontainers.ContainerOptions
	network   *netInMemory // nil for none
	platform  func(*virtcontainers.Platform)
}

// restoration describes one that fits the container.
func (s *saver) restoration(id string) *restoration {
	s.t.Helper()
	return &restoration{
		id: id, dir: s.dir, config: fakeguest.Config(), platform: func(*virtcontainers.Platform) {},
		container: virtcontainers.ContainerOptions{ID: id, Bundle: newBundle(s.t, s.host, id), IO: newIO(allStreams)},
	}
}

// restore creates the container.
func (s *saver) restore(r *restoration) (*saver, error) {
	s.t.Helper()
	from, err := virtcontainers.OpenRestoration(s.t.Context(), r.dir, r.config, r.container)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	platform := s.host.Platform()
	if r.network != nil {
		platform = r.network.platform(platform)
	}
	r.platform(&platform)
	p, err := bootOn(s.t, s.host, platform, func(o *virtcontainers.Options) { o.ID, o.Config, o.Restore = r.id, r.config, from })
	if err != nil {
		return nil, err
	}
	next := &saver{
		pod: p, vm: s.host.VM(), io: r.container.IO.(*testIO), dir: filepath.Join(s.t.TempDir(), "next"),
		said: s.said,
	}
	if next.c, err = p.Create(s.t.Context(), r.container, ignore); err != nil {
		return nil, err
	}
	return next, nil
}

// restored creates and starts the container.
func (s *saver) restored(r *restoration) *saver {
	s.t.Helper()
	next, err := s.restore(r)
	if err != nil {
		s.t.Fatal(err)
	}
	next.start(initOf(s.t, next.c))
	return next
}

// A container continues from a saved one, in another sandbox and by another name,
// and can be saved again.
func TestRestore(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	s.saveAndEnd()
	calls := len(s.host.Agent.Calls())
	next, err := s.restore(s.restoration("next"))
	if err != nil {
		t.Fatal(err)
	}
	if state := next.c.Info().State; state != virtcontainers.Created {
		t.Errorf("it is %s", state)
	}
	if diff := cmp.Diff(s.record().Machine.Layout, *next.vm.Spec.Awaits); diff != "" {
		t.Errorf("the machine awaits: %s", diff)
	}
	want := []*api.RenamedContainer{{From: sandboxID, To: "next"}}
	got := s.host.Agent.Rejoined()
	if diff := cmp.Diff(want, got.GetContainers(), protocmp.Transform()); diff != "" {
		t.Errorf("the guest was told: %s", diff)
	}
	if len(got.GetEntropy()) < 32 || !got.GetHostTime().IsValid() {
		t.Errorf("entropy of %d bytes, time %v", len(got.GetEntropy()), got.GetHostTime())
	}
	next.start(initOf(t, next.c))
	for _, call := range []string{"SetupSandbox", "Create next", "Start next"} {
		if slices.Contains(s.host.Agent.Calls()[calls:], call) {
			t.Errorf("the guest was asked for %s", call)
		}
	}
	if !slices.Contains(s.host.Agent.Calls()[calls:], "Resume next") {
		t.Error("the guest was not asked to let it run")
	}
	next.says("again ")
	next.saveAndEnd()
	next.restored(next.restoration("third")).checkGoesOn()
}

// How large a machine can become follows from its host, unless the configuration
// says it. One that continues on another host keeps that of the first.
func TestRestoreOnAnotherHost(t *testing.T) {
	for name, factor := range map[string]uint32{"larger": 2, "smaller": 1} {
		t.Run(name, func(t *testing.T) {
			s := saverOn(t, newHost(t), newNetwork(), func(o *virtcontainers.Options) {
				h := &o.Config.Hypervisor
				h.MaxVCPUs, h.MaxMemoryMiB, h.MemorySlots = 3, 3072, 10
			})
			s.says("before ")
			s.saveAndEnd()
			r := s.restoration("next")
			h := &r.config.Hypervisor
			h.MaxVCPUs, h.MaxMemoryMiB, h.MemorySlots = 2*factor, 2048*uint64(factor), 10
			next := s.restored(r)
			if spec := next.vm.Spec; spec.MaxVCPUs != 3 || spec.MaxMemoryMiB != 3072 {
				t.Errorf("the machine can become %d vCPUs and %d MiB large, want 3 and 3072", spec.MaxVCPUs, spec.MaxMemoryMiB)
			}
			next.says("again ")
			next.saveAndEnd()
			third := next.restoration("third")
			third.config.Hypervisor.MemorySlots = 10
			next.restored(third).checkGoesOn()
		})
	}
}

// Several containers continue from one, each from the same moment; also one of the
// same name.
func TestRestoreTwice(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	s.saveAndEnd()
	s.restored(s.restoration("one")).checkGoesOn()
	s.restored(s.restoration(sandboxID)).checkGoesOn()
	if renamed := s.host.Agent.Rejoined().GetContainers(); len(renamed) != 0 {
		t.Errorf("the guest was told %v", renamed)
	}
}

// What the saved container wrote while it was parked comes first; what was heard
// before is not repeated.
func TestRestoreOutput(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	s.host.Monitor.Hook(fake.StepSaveAll, func(context.Context, *fake.VM) error {
		s.writes("kept ")
		return nil
	})
	s.saveAndEnd()
	s.host.Monitor.Hook(fake.StepSaveAll, nil)
	next := s.restored(s.restoration("next"))
	next.heard = "kept "
	next.checkHeard()
	next.checkGoesOn()
}

// A restored container has its own spec's limits before it runs. Those that the
// spec does not set are not named, so that the saved ones stay.
func TestRestoreLimits(t *testing.T) {
	s := newSaver(t)
	s.saveAndEnd()
	r := s.restoration("next")
	memory := int64(64 << 20)
	limits := specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory}}
	r.container.Bundle.Spec.Linux.Resources = &limits
	r.container.Bundle.Spec.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Access: "rwm"}}
	var updates []*task.UpdateTaskRequest
	s.host.Agent.Hook("Update", func(_ context.Context, req proto.Message) error {
		updates = append(updates, req.(*task.UpdateTaskRequest))
		return nil
	})
	calls := len(s.host.Agent.Calls())
	next := s.restored(r)
	var order []string
	for _, call := range s.host.Agent.Calls()[calls:] {
		if strings.HasPrefix(call, "Rejoin") || strings.HasPrefix(call, "Update") || strings.HasPrefix(call, "Resume") {
			order = append(order, call)
		}
	}
	if diff := cmp.Diff([]string{"Rejoin", "Update next", "Resume next"}, order); diff != "" {
		t.Errorf("the guest was asked for: %s", diff)
	}
	if len(updates) != 1 || string(updates[0].Resources.GetValue()) != `{"memory":{"limit":67108864}}` {
		t.Errorf("the guest was told of the limits %v", updates)
	}
	next.checkGoesOn()
}

// Limits that the guest refuses fail the restore, and leave nothing.
func TestRestoreRefusedLimits(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	s.saveAndEnd()
	r := s.restoration("next")
	r.container.Bundle.Spec.Linux.Resources = &specs.LinuxResources{Pids: &specs.LinuxPids{}}
	s.host.Agent.Fail("Update", errInjected)
	_, err := s.restore(r)
	wantError(t, "restore", err, isError, "limits: set the limits of its spec: injected")
	s.host.Agent.Fail("Update", nil)
	s.restored(s.restoration("next")).checkGoesOn()
}

// A restored container gets its own network.
func TestRestoreNetwork(t *testing.T) {
	net := newNetwork()
	s := saverOn(t, newHost(t), net, func(*virtcontainers.Options) {})
	s.saveAndEnd()
	r := s.restoration("next")
	r.network = newNetwork()
	r.network.setMTU(9000)
	next := s.restored(r)
	if mtu := s.host.Agent.Network().GetInterfaces()[0].GetMtu(); mtu != 9000 {
		t.Errorf("the guest was told of an MTU of %d", mtu)
	}
	next.checkGoesOn()
}

// A container that was never started, but deleted, leaves nothing.
func TestRestoreUnstarted(t *testing.T) {
	s := newSaver(t)
	s.saveAndEnd()
	next, err := s.restore(s.restoration("next"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := next.c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	next.awaitStopped()
	next.observer.expect(t, "next=137")
	checkNothingLeft(t, s.host)
}

// With a key, what is saved is encrypted, and restored with that key.
func TestRestoreWithKey(t *testing.T) {
	key := keyFile(t, 32)
	s := saverOn(t, newHost(t), nil, func(o *virtcontainers.Options) { o.Config.Runtime.CheckpointKeyFile = key })
	s.says("before ")
	s.saveAndEnd()
	f, err := os.Open(s.file())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := checkpoint.Open(f, nil); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("opened without a key: %v", err)
	}
	r := s.restoration("next")
	r.config.Runtime.CheckpointKeyFile = key
	s.restored(r).checkGoesOn()
}

// What does not fit is refused, with its name, and leaves nothing. Another try
// that fits succeeds.
func TestRestoreRefusals(t *testing.T) {
	forge := func(change func(*checkpoint.Record)) func(*testing.T, *saver, *restoration) {
		return func(t *testing.T, s *saver, r *restoration) {
			t.Helper()
			r.dir = t.TempDir()
			rewrite(t, s, r.dir, change)
		}
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, s *saver, r *restoration)
		is     func(error) bool
		want   string
	}{
		"no file": {func(t *testing.T, _ *saver, r *restoration) {
			t.Helper()
			r.dir = t.TempDir()
		}, errdefs.IsInvalidArgument, "not a checkpoint of this runtime"},
		"another file": {func(t *testing.T, _ *saver, r *restoration) {
			t.Helper()
			r.dir = t.TempDir()
			if err := os.WriteFile(filepath.Join(r.dir, checkpoint.File), make([]byte, 1024), 0o600); err != nil {
				t.Fatal(err)
			}
		}, errdefs.IsInvalidArgument, "it begins with"},
		"FIFO": {func(t *testing.T, _ *saver, r *restoration) {
			t.Helper()
			r.dir = t.TempDir()
			if err := unix.Mkfifo(filepath.Join(r.dir, checkpoint.File), 0o600); err != nil {
				t.Fatal(err)
			}
		}, isError, "not a regular file"},
		"link": {func(t *testing.T, s *saver, r *restoration) {
			t.Helper()
			r.dir = t.TempDir()
			if err := os.Symlink(s.file(), filepath.Join(r.dir, checkpoint.File)); err != nil {
				t.Fatal(err)
			}
		}, func(err error) bool { return errors.Is(err, unix.ELOOP) }, checkpoint.File},
		"key's FIFO": {func(t *testing.T, _ *saver, r *restoration) {
			t.Helper()
			r.config.Runtime.CheckpointKeyFile = filepath.Join(t.TempDir(), "key")
			if err := unix.Mkfifo(r.config.Runtime.CheckpointKeyFile, 0o600); err != nil {
				t.Fatal(err)
			}
		}, isError, "not a regular file"},
		"truncated": {func(t *testing.T, s *saver, r *restoration) {
			t.Helper()
			r.dir = t.TempDir()
			truncate(t, s, r.dir)
		}, errdefs.IsInvalidArgument, "truncated"},
		"key": {func(t *testing.T, _ *saver, r *restoration) {
			t.Helper()
			r.config.Runtime.CheckpointKeyFile = keyFile(t, 32)
		}, errdefs.IsFailedPrecondition, "it is not encrypted"},
		"terminal": {func(_ *testing.T, _ *saver, r *restoration) { r.container.Terminal = true }, errdefs.IsFailedPrecondition, "has a terminal: false, this one: true"},
		"memory":   {func(_ *testing.T, _ *saver, r *restoration) { r.config.Hypervisor.MemoryMiB++ }, errdefs.IsFailedPrecondition, "the configuration has changed?"},
		"kernel":   {func(_ *testing.T, _ *saver, r *restoration) { r.config.Hypervisor.Kernel = "/other" }, errdefs.IsFailedPrecondition, "/other"},
		"version":  {forge(func(rec *checkpoint.Record) { rec.Machine.VMM = "9.2.0" }), errdefs.IsFailedPrecondition, "version 9.2.0"},
		"CPU":      {forge(func(rec *checkpoint.Record) { rec.Machine.CPU = "model name: other\n" }), errdefs.IsFailedPrecondition, "another CPU"},
		"devices": {forge(func(rec *checkpoint.Record) {
			rec.Machine.Layout.Devices = maps.Clone(rec.Machine.Layout.Devices)
			rec.Machine.Layout.Devices["rng"] = "01/09"
		}), errdefs.IsFailedPrecondition, "rng"},
		"more vCPUs than allowed": {forge(func(rec *checkpoint.Record) { rec.Machine.Layout.VCPUs, rec.Machine.MaxVCPUs = 9, 9 }), errdefs.IsFailedPrecondition,
			"has 9 vCPUs, this host and its configuration allow 1 (default_maxvcpus)"},
		"container's id": {forge(func(rec *checkpoint.Record) { rec.Container.ID = "../other" }), errdefs.IsInvalidArgument, "../other"},
		"share's id":     {forge(func(rec *checkpoint.Record) { rec.Container.ShareID = "" }), errdefs.IsInvalidArgument, "the saved container"},
		"mount missing":  {forge(func(rec *checkpoint.Record) { rec.Container.Mounts["/data"] = "/run/x" }), errdefs.IsFailedPrecondition, "a mount at /data, this one has none"},
		"more mounts": {func(t *testing.T, _ *saver, r *restoration) {
			t.Helper()
			r.container.Bundle.Spec.Mounts = append(r.container.Bundle.Spec.Mounts,
				specs.Mount{Destination: "/data", Type: "bind", Source: t.TempDir(), Options: []string{"rbind"}})
		}, errdefs.IsFailedPrecondition, "a mount at /data, the saved container has none"},
		"socket": {func(_ *testing.T, _ *saver, r *restoration) {
			r.container.Bundle.Spec.Mounts = append(r.container.Bundle.Spec.Mounts, specs.Mount{Destination: "/socket", Type: "uds", Source: "/none"})
		}, errdefs.IsFailedPrecondition, "mounted at /socket: a container that continues from a saved one has only files of the share"},
		"disk": {func(_ *testing.T, _ *saver, r *restoration) {
			r.container.Rootfs = []*types.Mount{{Type: "ext4", Source: "/none/disk", Options: []string{"loop"}}}
		}, errdefs.IsFailedPrecondition, "/none/disk: a container that continues from a saved one has only files of the share"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaver(t)
			s.says("before ")
			s.saveAndEnd()
			r := s.restoration("next")
			tc.change(t, s, r)
			_, err := s.restore(r)
			wantError(t, "restore", err, tc.is, tc.want)
			checkNothingLeft(t, s.host)
			s.restored(s.restoration("next")).checkGoesOn()
		})
	}
}

// rewrite writes the checkpoint with another record into a directory.
func rewrite(t *testing.T, s *saver, dir string, change func(*checkpoint.Record)) {
	t.Helper()
	from, err := os.Open(s.file())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	r, err := checkpoint.Open(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	change(&r.Record)
	to, err := os.Create(filepath.Join(dir, checkpoint.File))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	w, err := checkpoint.Create(to, nil, r.Record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// truncate writes the checkpoint without its last bytes into a directory.
func truncate(t *testing.T, s *saver, dir string) {
	t.Helper()
	all, err := os.ReadFile(s.file())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, checkpoint.File), all[:len(all)-30], 0o600); err != nil {
		t.Fatal(err)
	}
}

// A restore that fails names the step, and leaves nothing.
func TestRestoreFails(t *testing.T) {
	for name, tc := range map[string]struct {
		harm func(s *saver)
		want string
	}{
		"launch": {func(s *saver) { s.host.Monitor.Fail(fake.StepLaunch, errInjected) }, "vm: launch virtual machine"},
		"load":   {func(s *saver) { s.host.Monitor.Fail(fake.StepLoadAll, errInjected) }, "load: load saved state into"},
		"death": {func(s *saver) {
			s.host.Monitor.Hook(fake.StepLoadAll, func(_ context.Context, vm *fake.VM) error {
				vm.Die(errDied)
				return errDied
			})
		}, errDied.Error()},
		"vsock":   {func(s *saver) { s.host.Agent.Fail(fakeguest.OpenTransport, errInjected) }, "vsock: injected"},
		"resume":  {func(s *saver) { s.host.Monitor.Fail(fake.StepResume, errInjected) }, "resume: resume virtual machine"},
		"rejoin":  {func(s *saver) { s.host.Agent.Fail("Rejoin", errInjected) }, "guest: give the guest to another sandbox"},
		"network": {func(s *saver) { s.host.Agent.Fail("SetNetwork", errInjected) }, "guest: set up the guest's network"},
		"stdio":   {func(s *saver) { s.host.Agent.Fail(fakeguest.Stream, errInjected) }, "streams: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaver(t)
			s.says("before ")
			s.saveAndEnd()
			tc.harm(s)
			next, err := s.restore(s.restoration("next"))
			wantError(t, "restore", err, func(error) bool { return true }, tc.want)
			if next != nil {
				t.Error("there is a container")
			}
		})
	}
}

// Each step of a restore can fail after it was done.
func TestRestoreFailpoints(t *testing.T) {
	s := newSaver(t)
	s.saveAndEnd()
	for _, step := range virtcontainers.BootSteps() {
		r := s.restoration("next")
		r.platform = func(p *virtcontainers.Platform) { p.Failpoint = step }
		_, err := s.restore(r)
		wantError(t, step, err, func(error) bool { return true }, step)
		checkNothingLeft(t, s.host)
	}
	s.restored(s.restoration("next")).checkGoesOn()
}

// A restore that is given up ends, whatever hangs.
func TestRestoreGivenUp(t *testing.T) {
	s := newSaver(t)
	s.saveAndEnd()
	hanging := s.hangs(fake.StepLoadAll)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hanging
		cancel()
	}()
	r := s.restoration("next")
	from, err := virtcontainers.OpenRestoration(s.t.Context(), r.dir, r.config, r.container)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	opts := options(newObserver())
	opts.ID, opts.Restore = r.id, from
	_, err = virtcontainers.New(ctx, s.host.Platform(), opts)
	wantError(t, "restore", err, func(error) bool { return true }, "canceled")
	checkNothingLeft(t, s.host)
}

// A start that fails leaves the container created, and can be tried again.
func TestRestoredStartFails(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	s.saveAndEnd()
	next, err := s.restore(s.restoration("next"))
	if err != nil {
		t.Fatal(err)
	}
	s.host.Agent.Hook("Resume", func(context.Context, proto.Message) error { return errInjected })
	init := initOf(t, next.c)
	wantError(t, "start", init.Start(t.Context(), ignore), func(error) bool { return true }, "injected")
	if state := next.c.Info().State; state != virtcontainers.Created {
		t.Errorf("it is %s", state)
	}
	s.host.Agent.Hook("Resume", nil)
	next.start(init)
	next.checkGoesOn()
}

func isError(err error) bool { return err != nil }
