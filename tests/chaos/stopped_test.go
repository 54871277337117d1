package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// killTimeouts of the agent's table: how long a guest may take to report the end
// of a killed container. With TCG it is six times as long.
const (
	// quickKill saves time: a second, six with TCG.
	quickKill = "kill_timeout = 1"
	// defaultKill is the least that is not below the default with KVM, 10 s, with
	// TCG: 12 s. TCG's own default, a minute, exceeds removeTimeout by itself.
	defaultKill = "kill_timeout = 2"
)

// killTimeout returns the line for the default with KVM.
func killTimeout() string {
	if os.Getenv(harness.EnvAccel) == "kvm" {
		return ""
	}
	return defaultKill
}

// daemonServedBy returns a daemon whose shares server serves, unless that is
// "", and which gives up silent guests as it does with KVM.
func daemonServedBy(t *testing.T, turn int, server string) *harness.Daemon {
	t.Helper()
	if server == harness.DefaultVirtiofsd && !harness.HasVirtiofsd() {
		t.Skipf("%s is not installed (Debian 12: qemu-system-common)", server)
	}
	d := daemonWith(t, turn, server)
	configure(t, d, "", killTimeout())
	return d
}

// neighbour is a pod beside the one that is struck: it must not notice.
func neighbour(ctx context.Context, t *testing.T, d *harness.Daemon) *harness.Container {
	t.Helper()
	pod, err := d.NewPod(ctx, "neighbour")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pod.Remove(d.Context(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return addIdle(ctx, t, pod)
}

func addIdle(ctx context.Context, t *testing.T, pod *harness.Pod, mounts ...specs.Mount) *harness.Container {
	t.Helper()
	c, err := pod.Add(ctx, harness.ContainerConfig{Name: "idle", Args: idle.Args, Spec: []oci.SpecOpts{oci.WithMounts(mounts)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// works runs a command that must print want.
func works(ctx context.Context, t *testing.T, c *harness.Container, command, want string) {
	t.Helper()
	if err := prints(ctx, c, command, want); err != nil {
		t.Fatal(err)
	}
}

// prints runs a command that must print want.
func prints(ctx context.Context, c *harness.Container, command, want string) error {
	p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script(command)})
	if err != nil || code != 0 {
		return fmt.Errorf("%s: code %d, %w", command, code, err)
	}
	if got := p.Out.String(); got != want {
		return fmt.Errorf("%s printed %q, want %q", command, got, want)
	}
	return nil
}

// removable removes a pod as a user would, with what still runs in it, within
// removeTimeout. A neighbour answers meanwhile.
func removable(ctx context.Context, t *testing.T, pod *harness.Pod, other *harness.Container, ran ...*harness.Process) {
	t.Helper()
	answering := askMeanwhile(ctx, other)
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	err := pod.Remove(within)
	for err != nil && within.Err() == nil { // containerd may still be handling a shim's death
		time.Sleep(50 * time.Millisecond)
		err = pod.Remove(within)
	}
	if err != nil {
		t.Errorf("remove pod within %v: %v", removeTimeout, err)
	}
	for _, p := range ran {
		if err := p.Remove(within); err != nil {
			t.Errorf("remove exec within %v: %v", removeTimeout, err)
		}
	}
	took := time.Since(began)
	answers, slowest, err := answering()
	if err != nil || answers == 0 {
		t.Errorf("the neighbour answered %d times: %v", answers, err)
	}
	t.Logf("removed within %.1f s; the neighbour answered %d times, within %.1f s each", took.Seconds(), answers, slowest.Seconds())
}

// askMeanwhile runs commands in a container, one after another, until the
// returned function is called. That returns how many it ran and the longest time of one.
func askMeanwhile(ctx context.Context, c *harness.Container) (end func() (int, time.Duration, error)) {
	stop, done := make(chan struct{}), make(chan struct{})
	var (
		answers int
		slowest time.Duration
		failure error
	)
	go func() {
		defer close(done)
		for failure == nil {
			began := time.Now()
			if failure = prints(ctx, c, "echo y > /y && cat /y", "y\n"); failure == nil {
				answers, slowest = answers+1, max(slowest, time.Since(began))
			}
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond): // the machine has other work too
			}
		}
	}()
	return func() (int, time.Duration, error) {
		close(stop)
		<-done
		return answers, slowest, failure
	}
}

// A process that serves the pod and is stopped, not killed, does not answer at
// all. The pod can still be ended, within removeTimeout, each of its exits is
// reported once, and a pod beside it does not notice.
func TestStopped(t *testing.T) {
	for kind, server := range map[string]string{harness.KindVMM: "", harness.KindVirtiofsd: harness.DefaultVirtiofsd} {
		t.Run(kind, func(t *testing.T) {
			d := daemonServedBy(t, 0, server)
			ctx := within(t, d)
			exits := record(ctx, d)
			t.Cleanup(exits.stop)
			pod, c, procs, other := podAndNeighbour(ctx, t, d, kind)
			if err := signalAll(procs, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			// A request that is never answered.
			askCtx, cancel := context.WithTimeout(ctx, time.Second)
			if p, err := c.Exec(askCtx, harness.ExecConfig{Args: script("cat /bin/busybox | wc -c")}); err == nil {
				_ = p.Start(askCtx)
			}
			cancel()
			removable(ctx, t, pod, other)
			for _, box := range []*harness.Container{c, pod.Sandbox} {
				reportedOnce(ctx, t, exits, box)
			}
		})
	}
}

// podAndNeighbour makes a pod with a container, and a neighbour. It returns those
// processes of the pod that are of a kind.
func podAndNeighbour(ctx context.Context, t *testing.T, d *harness.Daemon, kind string) (
	pod *harness.Pod, c *harness.Container, procs []harness.Proc, other *harness.Container,
) {
	t.Helper()
	pod, err := d.NewPod(ctx, "pod")
	if err != nil {
		t.Fatal(err)
	}
	c = addIdle(ctx, t, pod)
	works(ctx, t, c, "echo here", "here\n")
	procs, err = find(d, kind)
	if err != nil || len(procs) == 0 {
		t.Fatalf("the pod has no %s, %v", kind, err)
	}
	return pod, c, procs, neighbour(ctx, t, d)
}

// reportedOnce checks that one exit of a container was reported.
func reportedOnce(ctx context.Context, t *testing.T, exits *tape, c *harness.Container) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	id := c.Box.ID()
	if err := exits.await(ctx, id, id); err != nil {
		t.Error(err)
	}
	if codes := exits.codes(id, id); len(codes) != 1 || codes[0] != killed && codes[0] != lostContact {
		t.Errorf("%s: exit events with the codes %v, want one %d or %d", id, codes, killed, lostContact)
	}
}

// A hung file system of the host blocks only processes that use it: not the
// pod's other files, not other pods, not the pod's end.
func TestHungFileSystem(t *testing.T) {
	d := daemonServedBy(t, 0, "")
	ctx := within(t, d)
	slow, volume := mountSlow(t), t.TempDir()
	other := neighbour(ctx, t, d)
	pod, err := d.NewPod(ctx, "pod")
	if err != nil {
		t.Fatal(err)
	}
	c := addIdle(ctx, t, pod, bind(slow.dir, "/slow"), bind(volume, "/volume"))
	works(ctx, t, c, "cat /slow/file", slowText)
	slow.hang()
	waiter := askInVain(ctx, t, c)
	for i := range 3 {
		works(ctx, t, c, fmt.Sprintf("echo %d > /volume/file && cat /volume/file; echo x > /x && cat /x", i), fmt.Sprintf("%d\nx\n", i))
		works(ctx, t, other, "echo y > /y && cat /y", "y\n")
	}
	if got, err := os.ReadFile(filepath.Join(volume, "file")); strings.TrimSpace(string(got)) != "2" || err != nil {
		t.Errorf("the host sees %q, %v", got, err)
	}
	removable(ctx, t, pod, other, waiter)
	works(ctx, t, other, "cat /y", "y\n")
}

// All threads of QEMU's virtiofsd wait for such a file system, so the pod's
// other files hang too. The pod can still be ended, within the time of any
// call, and other pods are not affected. The daemon is killed, but ends only
// when the file system answers: no signal interrupts its threads.
func TestHungFileSystemBelowDaemon(t *testing.T) {
	d := daemonServedBy(t, 0, harness.DefaultVirtiofsd)
	ctx := within(t, d)
	slow := mountSlow(t)
	other := neighbour(ctx, t, d)
	pod, err := d.NewPod(ctx, "pod")
	if err != nil {
		t.Fatal(err)
	}
	c := addIdle(ctx, t, pod, bind(slow.dir, "/slow"))
	works(ctx, t, c, "cat /slow/file", slowText)
	slow.hang()
	waiter := ask(ctx, t, c)
	if err := slow.awaitHeld(ctx); err != nil {
		t.Fatal(err)
	}
	works(ctx, t, other, "echo y > /y && cat /y", "y\n")
	removable(ctx, t, pod, other, waiter)
	works(ctx, t, other, "cat /y", "y\n")
}

// bind returns a mount of a host directory.
func bind(from, to string) specs.Mount {
	return specs.Mount{Type: "bind", Source: from, Destination: to, Options: []string{"rbind", "rw"}}
}

// ask reads the file in more processes than the server has threads for one
// mount.
func ask(ctx context.Context, t *testing.T, c *harness.Container) *harness.Process {
	t.Helper()
	waiter, err := c.Exec(ctx, harness.ExecConfig{Args: script("for i in $(seq 80); do cat /slow/file & done; echo asked; wait")})
	if err != nil {
		t.Fatal(err)
	}
	if err := waiter.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return waiter
}

// askInVain is like ask, but only waits until all processes have been started,
// which shows that other files are served.
func askInVain(ctx context.Context, t *testing.T, c *harness.Container) *harness.Process {
	t.Helper()
	waiter := ask(ctx, t, c)
	if err := waiter.Out.Await(ctx, "asked"); err != nil {
		t.Fatal(err)
	}
	return waiter
}
