package virtcontainers_test

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/log"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
)

// sleepers starts processes that stand for vCPU threads.
func sleepers(t *testing.T, n int) []int {
	t.Helper()
	var ids []int
	for range n {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		ids = append(ids, cmd.Process.Pid)
	}
	return ids
}

// cpusOf lists, for each thread, the CPUs that it may run on: "1" or "01".
func cpusOf(t *testing.T, ids []int) string {
	t.Helper()
	var all []string
	for _, id := range ids {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(id, &set); err != nil {
			t.Fatal(err)
		}
		list := ""
		for cpu := range 10 {
			if set.IsSet(cpu) {
				list += string(rune('0' + cpu))
			}
		}
		all = append(all, list)
	}
	return strings.Join(all, " ")
}

// hostCPUs returns cpusOf's result for a thread that may run on all CPUs.
func hostCPUs(t *testing.T) string { t.Helper(); return cpusOf(t, []int{0}) }

// needTwoCPUs skips a test unless exactly CPUs 0 and 1 are available.
func needTwoCPUs(t *testing.T) {
	t.Helper()
	if got := hostCPUs(t); got != "01" {
		t.Skipf("needs CPUs 0 and 1 and no other: there are %d, of the first ten %q", runtime.NumCPU(), got)
	}
}

// logged collects what is logged with level info and above.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns how many lines contain the text.
func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func withLog(ctx context.Context) (context.Context, *logged) {
	l := new(logged)
	logger := logrus.New()
	logger.SetOutput(l)
	return log.WithLogger(ctx, logrus.NewEntry(logger)), l
}

// pinnedPod boots a pod that pins its vCPUs; threads stand for these.
func pinnedPod(t *testing.T, threads []int) (*pod, *logged) {
	t.Helper()
	p := &pod{t: t, host: newHost(t), observer: newObserver()}
	opts := options(p.observer)
	opts.Config.Runtime.PinVCPUs = true
	ctx, lines := withLog(t.Context())
	var err error
	if p.Sandbox, err = virtcontainers.New(ctx, p.host.Platform(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p.host.VM().SetVCPUThreads(threads...)
	return p, lines
}

// placed makes a container with a cpuset; the pod's cgroup has its shares.
func (p *pod) placed(ctx context.Context, id, cpus string, shares uint64) (*virtcontainers.Container, error) {
	p.t.Helper()
	opts := p.options(id, nil)
	opts.Bundle.Spec.Linux.Resources = &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: cpus, Shares: &shares}}
	return p.Create(ctx, opts, ignore)
}

func TestPinning(t *testing.T) {
	needTwoCPUs(t)
	threads := sleepers(t, 2)
	p, _ := pinnedPod(t, threads)
	ctx, lines := withLog(t.Context())
	const bound, free = "is bound to", "their numbers differ"
	step := func(what, want, says string, times int) {
		t.Helper()
		eventually(t, what+": CPUs "+want, func() bool { return cpusOf(t, threads) == want })
		if got := lines.count(says); got != times {
			t.Errorf("%s: %q was logged %d times, want %d", what, says, got, times)
		}
	}
	create := func(id, cpus string) *virtcontainers.Container {
		t.Helper()
		c, err := p.placed(ctx, id, cpus, 2)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	create(sandboxID, "")
	step("no cpuset: the process's two", "0 1", bound, 1)
	a := create("a", "1")
	step("two on one CPU", "1 1", free, 1)
	create("b", "1")
	step("the same again", "1 1", free, 1)
	create("c", "0")
	step("as many as before", "0 1", bound, 2)
	p.exits("c", "", 0)
	step("one has ended", "1 1", free, 1)
	if err := a.Update(ctx, encoded(t, &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0"}})); err != nil {
		t.Error(err)
	}
	step("an update", "0 1", bound, 3)
	p.host.VM().SetVCPUThreads(threads[1], threads[0])
	create("d", "")
	step("another order, and a container without cpuset", "1 0", bound, 3)
}

// Threads that cannot be bound do not prevent containers from running.
func TestPinningFails(t *testing.T) {
	needTwoCPUs(t)
	p, _ := pinnedPod(t, sleepers(t, 1))
	ctx, lines := withLog(t.Context())
	for _, tt := range []struct {
		id, cpus, want string
		before         func()
	}{
		{"a", "9", "let thread ", func() {}},
		{"b", "9", "let thread ", func() {}},
		{"c", "0", "injected", func() { p.host.Monitor.Fail(fake.StepVCPUThreads, errInjected) }},
	} {
		tt.before()
		if _, err := p.placed(ctx, tt.id, tt.cpus, 2); err != nil {
			t.Errorf("container %s: %v", tt.id, err)
		}
		if got := lines.count(tt.want); got != 1 {
			t.Errorf("container %s: %q was logged %d times, want once", tt.id, tt.want, got)
		}
	}
}

// Without the key a cpuset binds nothing.
func TestNoPinning(t *testing.T) {
	needTwoCPUs(t)
	threads := sleepers(t, 1)
	p := newPod(t)
	p.host.VM().SetVCPUThreads(threads...)
	if _, err := p.placed(t.Context(), "a", "0", 2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(hostCPUs(t), cpusOf(t, threads)); diff != "" {
		t.Errorf("CPUs of a vCPU that is not to be pinned: %s", diff)
	}
}
