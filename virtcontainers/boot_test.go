package virtcontainers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
)

var errInjected = errors.New("injected")

func TestBoot(t *testing.T) {
	want := []string{"state", "netns", "cgroup", "standins", "share", "user", "vm", "vsock", "network", "pod-standin", "storage", "hardware", "account", "resume", "agent", "charge", "forward", "guest", "management"}
	if diff := cmp.Diff(want, virtcontainers.BootSteps()); diff != "" {
		t.Errorf("steps: %s", diff)
	}
	p := newPod(t)
	var kinds []string
	for _, d := range p.host.VM().Devices() {
		kinds = append(kinds, fmt.Sprintf("%T", d))
	}
	if diff := cmp.Diff([]string{"hypervisor.VhostVsock", "hypervisor.FSShare"}, kinds); diff != "" {
		t.Errorf("devices: %s", diff)
	}
	if !p.host.VM().Resumed() {
		t.Error("the machine was not resumed")
	}
	spec := p.host.VM().Spec
	if spec.ID != sandboxID || spec.MemoryMiB != 256 || spec.Accel != hypervisor.AccelTCG {
		t.Errorf("machine: %+v", spec)
	}
	checkSetup(t, p.host.Agent.Setup())
	if name := p.host.Agent.Network().GetHostname(); name != "host" {
		t.Errorf("the guest was named %q", name)
	}
	rec, err := persist.Load(p.host.Platform().StateDir(), sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Shim.PID != os.Getpid() || !rec.VM.Alive() || rec.FSDaemon.PID != 0 {
		t.Errorf("record: %+v", rec)
	}
}

func checkSetup(t *testing.T, setup *api.SetupSandboxRequest) {
	t.Helper()
	if setup.GetSandboxId() != sandboxID {
		t.Errorf("guest was set up with %v", setup)
	}
	if age := time.Since(setup.GetHostTime().AsTime()).Abs(); age > time.Minute {
		t.Errorf("the guest was told a time that is off by %v", age)
	}
	var targets []string
	for _, s := range setup.GetStorages() {
		targets = append(targets, s.Target)
	}
	if diff := cmp.Diff([]string{api.GuestSharedDir, api.GuestShmDir}, targets); diff != "" {
		t.Errorf("storages: %s", diff)
	}
}

func TestKernelParams(t *testing.T) {
	host := newHost(t)
	platform, opts := host.Platform(), options(newObserver())
	platform.KernelParams, platform.AccelReason = "console=ttyS0", "no KVM"
	opts.Config.Agent.Debug, opts.Config.Agent.DebugConsole, opts.Config.Hypervisor.KernelParams = true, true, "mine=1"
	s, err := virtcontainers.New(t.Context(), platform, opts)
	if err != nil {
		t.Fatal(err)
	}
	if got := host.VM().Spec.KernelParams; got != "console=ttyS0 agent.log=debug agent.debug_console mine=1" {
		t.Errorf("kernel parameters are %q", got)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A boot that fails after any of its steps leaves nothing, and says where.
func TestBootFailpoints(t *testing.T) {
	t.Parallel()
	for _, step := range virtcontainers.BootSteps() {
		t.Run(step, func(t *testing.T) {
			host, o := newHost(t), newObserver()
			platform := host.Platform()
			platform.Failpoint = step
			_, err := virtcontainers.New(t.Context(), platform, options(o))
			if err == nil || !strings.Contains(err.Error(), step+": failpoint") {
				t.Errorf("got %v", err)
			}
			checkNothingLeft(t, host)
			if len(o.list()) != 0 {
				t.Errorf("exits: %v", o.list())
			}
			boot(t, host) // the same id can be tried again
		})
	}
}

// Any failure within a step is named in the error, and leaves nothing behind.
func TestBootFailures(t *testing.T) {
	t.Parallel()
	fail := func(step fake.Step) func(*fakeguest.Host) {
		return func(h *fakeguest.Host) { h.Monitor.Fail(step, errInjected) }
	}
	agent := func(method string) func(*fakeguest.Host) {
		return func(h *fakeguest.Host) { h.Agent.Fail(method, errInjected) }
	}
	tests := []struct {
		name    string
		arrange func(*fakeguest.Host)
		want    []string
	}{
		{"launch", fail(fake.StepLaunch), []string{"vm: ", "injected"}},
		{"vsock device", fail(fake.AttachStep(hypervisor.VhostVsock{})), []string{"vsock: ", "injected"}},
		{"share device", fail(fake.AttachStep(hypervisor.FSShare{})), []string{"storage: ", "injected"}},
		{"resume", fail(fake.StepResume), []string{"resume: ", "injected"}},
		{"no transport", agent(fakeguest.OpenTransport), []string{"vsock: ", "injected"}},
		{"dial", agent(fakeguest.Dial + " 1024"), []string{"agent: dial agent", "injected"}},
		{"hello", agent("Hello"), []string{"agent: greet agent", "injected"}},
		{"other version", func(h *fakeguest.Host) { h.Agent.Speak(99) }, []string{"agent: greet agent", "version 99"}},
		{"set-up", agent("SetupSandbox"), []string{"guest: set up guest", "injected"}},
		{"VM dies in resume", func(h *fakeguest.Host) {
			h.Monitor.Hook(fake.StepResume, func(_ context.Context, vm *fake.VM) error {
				vm.Die(hypervisor.ErrPowerOff)
				return nil
			})
		}, []string{"resume: ", "powered off"}},
		{"VM dies before the agent answers", func(h *fakeguest.Host) {
			h.Agent.Hook(fakeguest.Dial+" 1024", func(context.Context, proto.Message) error {
				h.VM().SetConsole("Kernel panic - not syncing")
				h.VM().Die(hypervisor.ErrPowerOff)
				return syscall.ECONNREFUSED
			})
		}, []string{"agent: ", "powered off", "Kernel panic - not syncing"}},
		{"VM dies in set-up", func(h *fakeguest.Host) {
			h.Agent.Hook("SetupSandbox", func(ctx context.Context, _ proto.Message) error {
				h.VM().SetConsole("Kernel panic - not syncing")
				h.VM().Die(hypervisor.ErrPowerOff)
				<-ctx.Done()
				return ctx.Err()
			})
		}, []string{"guest: ", "powered off", "Kernel panic - not syncing"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host := newHost(t)
			tt.arrange(host)
			_, err := virtcontainers.New(t.Context(), host.Platform(), options(newObserver()))
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want it to name %q", err, want)
				}
			}
			checkNothingLeft(t, host)
		})
	}
}

func TestBootNeedsDaemon(t *testing.T) {
	host := newHost(t)
	opts := options(newObserver())
	opts.Config.Hypervisor.VirtioFS.Daemon = "/no/such/virtiofsd"
	_, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err == nil || !strings.Contains(err.Error(), "share: ") || !strings.Contains(err.Error(), "/no/such/virtiofsd") {
		t.Errorf("got %v", err)
	}
}

func TestBootEndsInTime(t *testing.T) {
	t.Parallel()
	host := newHost(t)
	host.Agent.Fail(fakeguest.Dial+" 1024", syscall.ECONNREFUSED)
	opts := options(newObserver())
	opts.Config.Agent.DialTimeout = 50 * time.Millisecond
	_, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err == nil || !strings.Contains(err.Error(), "did not answer within 50ms") {
		t.Errorf("got %v", err)
	}
	checkNothingLeft(t, host)

	host.Agent.Fail(fakeguest.Dial+" 1024", nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	hanging := host.Agent.Hang("SetupSandbox")
	go func() {
		<-hanging
		cancel(errInjected)
	}()
	if _, err = virtcontainers.New(ctx, host.Platform(), options(newObserver())); !errors.Is(err, errInjected) {
		t.Errorf("got %v", err)
	}
	if _, err = virtcontainers.New(ctx, host.Platform(), options(newObserver())); !errors.Is(err, errInjected) {
		t.Errorf("with an ended context: %v", err)
	}
}

// An undo that fails is reported, and the others still run. The record of a machine that
// has not ended stays, and says so.
func TestUndoFails(t *testing.T) {
	host := newHost(t)
	host.Agent.Fail("SetupSandbox", errInjected)
	host.Monitor.Fail(fake.StepStop, errors.New("cannot be killed"))
	_, err := virtcontainers.New(t.Context(), host.Platform(), options(newObserver()))
	if err == nil || !strings.Contains(err.Error(), "undo vm: ") || !strings.Contains(err.Error(), "cannot be killed") {
		t.Errorf("got %v", err)
	}
	left, err := host.Leftovers()
	if err != nil {
		t.Fatal(err)
	}
	record := host.Platform().PodDir(sandboxID)
	if !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, "machine ") }) || !slices.Contains(left, record) || len(left) != 2 {
		t.Errorf("left: %v", left)
	}
	host.VM().Die(errInjected)
	removeMarked(t, host)
}
