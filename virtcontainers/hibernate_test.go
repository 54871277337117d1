package virtcontainers_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// sleeper is a pod with memory, and with a directory for it.
type sleeper struct {
	*pod
	vm     *fake.VM
	memory []byte
	dir    string
}

func newSleeper(t *testing.T) *sleeper {
	t.Helper()
	return sleeperOn(t, newHost(t), func(*virtcontainers.Options) {})
}

func sleeperOn(t *testing.T, host *fakeguest.Host, change func(*virtcontainers.Options)) *sleeper {
	t.Helper()
	dir := filepath.Join(diskDir(t), "made")
	p := bootChanged(t, host, func(o *virtcontainers.Options) {
		o.Config.Runtime.HibernatePath = dir
		change(o)
	})
	s := &sleeper{pod: p, vm: host.VM(), dir: dir, memory: bytes.Repeat([]byte("katabox "), 1<<17)}
	s.memory = append(s.memory, make([]byte, 1<<20)...)
	if err := s.vm.SetMemory(s.memory); err != nil {
		t.Fatal(err)
	}
	s.run("c1")
	return s
}

// diskDir returns a new directory that is on a disk: /tmp may be in memory.
func diskDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "kb") //nolint:usetesting // t.TempDir may be in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// sleeps has the pod hibernate.
func (s *sleeper) sleeps() virtcontainers.Hibernation {
	s.t.Helper()
	h, err := s.Hibernate(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.checkAsleep()
	return h
}

// checkAsleep checks that the machine stands still without memory.
func (s *sleeper) checkAsleep() {
	s.t.Helper()
	now, err := s.vm.Memory()
	if err != nil || !bytes.Equal(now, make([]byte, len(s.memory))) {
		s.t.Errorf("the machine still has its memory, %v", err)
	}
	if !s.vm.Paused() || s.Describe().Hibernation == nil {
		s.t.Errorf("paused %t, hibernation %+v", s.vm.Paused(), s.Describe().Hibernation)
	}
}

// checkAwake checks that the machine runs with the memory that it had.
func (s *sleeper) checkAwake() {
	s.t.Helper()
	now, err := s.vm.Memory()
	if err != nil || !bytes.Equal(now, s.memory) {
		s.t.Errorf("the machine's memory has changed, %v", err)
	}
	if s.vm.Paused() || s.Describe().Hibernation != nil {
		s.t.Errorf("paused %t, hibernation %+v", s.vm.Paused(), s.Describe().Hibernation)
	}
}

func TestHibernation(t *testing.T) {
	s := newSleeper(t)
	h := s.sleeps()
	if h.MemoryBytes < 1<<20 || h.ImageBytes == 0 || h.ImageBytes > h.MemoryBytes || time.Since(h.Since) > patience {
		t.Errorf("hibernation: %+v", h)
	}
	if left, err := os.ReadDir(s.dir); len(left) != 0 || err != nil {
		t.Errorf("the image has a name: %v, %v", left, err)
	}
	if _, err := s.Hibernate(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("twice: %v", err)
	}
	if err := s.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.checkAwake()
	if err := s.Wake(t.Context()); err != nil {
		t.Errorf("awake already: %v", err)
	}
	s.sleeps() // again
}

// What asks the guest for something wakes it, and nothing is lost.
func TestCallsWake(t *testing.T) {
	for name, call := range map[string]func(s *sleeper) error{
		"kill": func(s *sleeper) error {
			return initOf(s.t, s.container("c1")).Kill(s.t.Context(), uint32(unix.SIGTERM), false)
		},
		"create": func(s *sleeper) error {
			_, err := s.Create(s.t.Context(), s.options("c2", nil), func(*virtcontainers.Container) {})
			return err
		},
		"pause":  func(s *sleeper) error { return s.container("c1").Pause(s.t.Context(), func() {}) },
		"update": func(s *sleeper) error { return s.container("c1").Update(s.t.Context(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper(t)
			s.sleeps()
			if err := call(s); err != nil {
				t.Error(err)
			}
			s.checkAwake()
			if !slices.Contains(s.host.Agent.Calls(), "SetClock") {
				t.Errorf("the guest's clock was not set: %v", s.host.Agent.Calls())
			}
		})
	}
}

// Questions about a pod get what was last true, and do not wake it.
func TestWatchersDoNotWake(t *testing.T) {
	s := sleeperOn(t, newHost(t), func(o *virtcontainers.Options) {
		o.Config.Agent.HealthInterval, o.Config.Agent.HealthTimeout = 10*time.Millisecond, patience
	})
	encoded, err := proto.Marshal(&stats.Metrics{Pids: &stats.PidsStat{Current: 7}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Agent.SetMetrics(encoded)
	s.sleeps()
	s.host.Agent.Hang("Hello")
	calls := len(s.host.Agent.Calls())
	if m, err := s.container("c1").Stats(t.Context()); err != nil || m.GetPids().GetCurrent() != 7 {
		t.Errorf("stats: %v, %v", m, err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	// "kata-runtime direct-volume" asks all pods of the host.
	if _, err := s.VolumeStats(t.Context(), "/elsewhere"); !errdefs.IsNotFound(err) {
		t.Errorf("a volume of another pod: %v", err)
	}
	if _, err := s.GrowVolume(t.Context(), "/elsewhere", 0); !errdefs.IsNotFound(err) {
		t.Errorf("another pod's volume grows: %v", err)
	}
	if up := s.scrape()["kata_shim_hibernating"].GetMetric()[0].GetGauge().GetValue(); up != 1 {
		t.Errorf("kata_shim_hibernating is %v", up)
	}
	time.Sleep(100 * time.Millisecond) // ten health checks
	if n := len(s.host.Agent.Calls()); n != calls {
		t.Errorf("the guest was asked: %v", s.host.Agent.Calls()[calls:])
	}
	s.checkAsleep()
}

// A hibernation that fails leaves the pod as it was.
func TestHibernationFails(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		harm func(s *sleeper)
		want string
	}{
		"pause":  {func(s *sleeper) { s.host.Monitor.Fail(fake.StepPause, broken) }, "broken"},
		"memory": {func(s *sleeper) { s.host.Monitor.Fail(fake.StepMemory, broken) }, "broken"},
		"directory": {func(s *sleeper) {
			if err := os.WriteFile(s.dir, nil, 0o600); err != nil {
				s.t.Fatal(err)
			}
		}, "runtime.hibernate_path"},
		"in memory": {func(s *sleeper) {
			if err := os.MkdirAll(s.dir, 0o700); err != nil {
				s.t.Fatal(err)
			}
			if err := unix.Mount("none", s.dir, "tmpfs", 0, ""); err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { _ = unix.Unmount(s.dir, unix.MNT_DETACH) })
		}, "is in memory"},
		"too much memory": {func(s *sleeper) {
			if err := s.vm.SetMemory(bytes.Repeat([]byte("x"), int(s.vm.Spec.MemoryMiB+1)<<20)); err != nil {
				s.t.Fatal(err)
			}
		}, "store memory image"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sleeperOn(t, newHost(t), func(o *virtcontainers.Options) {
				o.Config.Hypervisor.MemoryMiB, o.Config.Hypervisor.MaxMemoryMiB = 64, 64
			})
			tc.harm(s)
			before, err := s.vm.Memory()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Hibernate(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
			s.memory = before
			s.checkAwake()
			s.host.Monitor.Fail(fake.StepPause, nil)
			if err := initOf(t, s.container("c1")).Kill(t.Context(), uint32(unix.SIGTERM), false); err != nil {
				t.Errorf("a call afterwards: %v", err)
			}
		})
	}
}

// A change of the network wakes a pod before the machine is asked to take or to give
// up a card: the guest of a machine that is paused does neither.
func TestNetworkChangeWakes(t *testing.T) {
	host, net := newHost(t), newNetwork()
	dir := filepath.Join(diskDir(t), "made")
	p, err := bootOn(t, host, net.platform(host.Platform()), func(o *virtcontainers.Options) { o.Config.Runtime.HibernatePath = dir })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Hibernate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var paused atomic.Bool
	net.mu.Lock()
	net.onPlug = func() { paused.Store(host.VM().Paused()) }
	net.mu.Unlock()
	net.changed <- struct{}{}
	if err := await(t, "the change", net.followed); err != nil || paused.Load() || p.Describe().Hibernation != nil {
		t.Errorf("%v, cards were changed while paused: %t, hibernation %+v", err, paused.Load(), p.Describe().Hibernation)
	}
}

// A machine that is being made smaller is not paused meanwhile.
func TestHibernationWaitsForShrinking(t *testing.T) {
	s := sleeperOn(t, newHost(t), func(o *virtcontainers.Options) {
		o.Config.Hypervisor.MaxVCPUs, o.Config.Runtime.StaticSizing = 4, false
	})
	if _, err := s.limited("c2", 300_000, 1); err != nil {
		t.Fatal(err)
	}
	asked, proceed := make(chan struct{}), make(chan struct{})
	s.host.Monitor.Hook(fake.StepSetVCPUs, func(context.Context, *fake.VM) error {
		close(asked)
		<-proceed
		return nil
	})
	s.exits("c2", "", 0)
	await(t, "the request for fewer vCPUs", asked)
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := s.Hibernate(short); !errdefs.IsUnavailable(err) {
		t.Errorf("error %v", err)
	}
	close(proceed)
	s.sleeps()
}

// A pod whose guest has a call to answer stays awake.
func TestBusyPodStaysAwake(t *testing.T) {
	s := newSleeper(t)
	entered := s.host.Agent.Hang("Update")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.container("c1").Update(ctx, nil)
	}()
	<-entered
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := s.Hibernate(short); !errdefs.IsUnavailable(err) {
		t.Errorf("error %v", err)
	}
	s.checkAwake()
	cancel()
	<-done
	s.sleeps()
}

// A call that comes while the memory is saved does not wait for that: the pod
// stays awake.
func TestCallWhileFallingAsleep(t *testing.T) {
	s := newSleeper(t)
	called := make(chan error, 1)
	s.host.Monitor.Hook(fake.StepMemory, func(context.Context, *fake.VM) error {
		go func() { called <- s.container("c1").Pause(context.Background(), func() {}) }()
		time.Sleep(100 * time.Millisecond) // until it waits
		return nil
	})
	if _, err := s.Hibernate(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "a call to pause container c1 needs it") {
		t.Errorf("error %v", err)
	}
	if err := <-called; err != nil {
		t.Errorf("the call: %v", err)
	}
	s.checkAwake()
}

// An exit that comes while the pod falls asleep keeps it awake until the process's
// output is here.
func TestExitWhileFallingAsleep(t *testing.T) {
	for _, id := range []string{"c2", sandboxID} { // the second one ends the pod
		t.Run(id, func(t *testing.T) {
			s := newSleeper(t)
			out := newIO(virtcontainers.Streams{Stdout: true})
			c, err := s.Create(t.Context(), s.options(id, out), ignore)
			if err != nil {
				t.Fatal(err)
			}
			s.start(initOf(t, c))
			s.says(id, "first ")
			s.host.Monitor.Hook(fake.StepMemory, func(context.Context, *fake.VM) error {
				s.told(&api.Event{Event: &api.Event_Exit{Exit: &api.Exit{ContainerId: id, Status: 5, StdoutBytes: uint64(len("first last"))}}})
				time.Sleep(100 * time.Millisecond) // until it waits
				return nil
			})
			if _, err := s.Hibernate(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "the end of container "+id+" needs it") {
				t.Errorf("error %v", err)
			}
			if told := s.observer.list(); len(told) > 0 {
				t.Errorf("before the end of the output: %v", told)
			}
			s.says(id, "last")
			if status := statusOf(t, initOf(t, c)); status != 5 {
				t.Errorf("status %d", status)
			}
			if stdout, _ := out.output(); stdout != "first last" {
				t.Errorf("output %q", stdout)
			}
		})
	}
}

// says has a container write a text.
func (s *sleeper) says(id, text string) {
	s.t.Helper()
	if err := s.host.Agent.Write(id, "", text); err != nil {
		s.t.Error(err)
	}
}

// A machine that does not run after a failure is lost, and the pod with it.
func TestPodThatDoesNotContinueIsLost(t *testing.T) {
	s := newSleeper(t)
	s.host.Monitor.Fail(fake.StepMemory, errors.New("broken"))
	s.host.Monitor.Fail(fake.StepResume, errors.New("stuck"))
	if _, err := s.Hibernate(t.Context()); err == nil || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("error %v", err)
	}
	s.awaitStopped()
	s.observer.expect(t, "c1=255")
}

// A pod that cannot be woken is lost.
func TestPodThatDoesNotWakeIsLost(t *testing.T) {
	s := newSleeper(t)
	s.sleeps()
	s.host.Monitor.Fail(fake.StepResume, errors.New("stuck"))
	if err := s.Wake(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("error %v", err)
	}
	s.awaitStopped()
	s.observer.expect(t, "c1=255")
}

// The end of a pod does not need its guest.
func TestPodEndsAsleep(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(s *sleeper)
		want string
	}{
		"stopped": {func(s *sleeper) {
			if err := s.Stop(s.t.Context()); err != nil {
				s.t.Error(err)
			}
		}, "c1=137"},
		"machine died": {func(s *sleeper) { s.vm.Die(hypervisor.ErrPowerOff) }, "c1=255"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSleeper(t)
			c := s.container("c1")
			s.sleeps()
			calls := len(s.host.Agent.Calls())
			tc.end(s)
			s.awaitStopped()
			s.observer.expect(t, tc.want)
			if _, err := c.Delete(t.Context()); err != nil {
				t.Errorf("delete: %v", err)
			}
			if err := s.Wake(t.Context()); !errdefs.IsUnavailable(err) {
				t.Errorf("wake: %v", err)
			}
			if n := len(s.host.Agent.Calls()); n != calls {
				t.Errorf("the guest was asked: %v", s.host.Agent.Calls()[calls:])
			}
		})
	}
}

// container returns a container that exists.
func (s *sleeper) container(id string) *virtcontainers.Container {
	s.t.Helper()
	c, err := s.Container(id)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}
