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

// quickKill shortens the time after which a guest that does not report a killed
// container's end is given up: a second, six with TCG.
const quickKill = "kill_timeout = 1"

// daemonServedBy returns a daemon whose shares server serves, unless that is
// "", and which soon gives up silent guests.
func daemonServedBy(t *testing.T, turn int, server string) *harness.Daemon {
	t.Helper()
	if server == harness.DefaultVirtiofsd && !harness.HasVirtiofsd() {
		t.Skipf("%s is not installed (Debian 12: qemu-system-common)", server)
	}
	d := daemonWith(t, turn, server)
	configure(t, d, "", quickKill)
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
	p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script(command)})
	if err != nil || code != 0 {
		t.Fatalf("%s: code %d, %v", command, code, err)
	}
	if got := p.Out.String(); got != want {
		t.Errorf("%s printed %q, want %q", command, got, want)
	}
}

// removable removes a pod as a user would, with what still runs in it, and
// checks that this takes no longer than a single call may.
func removable(ctx context.Context, t *testing.T, pod *harness.Pod, ran ...*harness.Process) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := pod.Remove(ctx); err != nil {
		t.Errorf("remove pod: %v", err)
	}
	for _, p := range ran {
		if err := p.Remove(ctx); err != nil {
			t.Errorf("remove exec: %v", err)
		}
	}
	t.Logf("removed within %.1f s", time.Since(began).Seconds())
}

// A process that serves the pod and is stopped, not killed, does not answer at
// all. The pod can still be ended. (The agent, an init that SIGSTOP does not
// reach, is stopped with its machine.)
func TestStopped(t *testing.T) {
	for kind, server := range map[string]string{harness.KindVMM: "", harness.KindVirtiofsd: harness.DefaultVirtiofsd} {
		t.Run(kind, func(t *testing.T) {
			d := daemonServedBy(t, 0, server)
			ctx := within(t, d)
			pod, err := d.NewPod(ctx, "pod")
			if err != nil {
				t.Fatal(err)
			}
			c := addIdle(ctx, t, pod)
			works(ctx, t, c, "echo here", "here\n")
			if err := signalKind(d, kind, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			// A request that is never answered.
			askCtx, cancel := context.WithTimeout(ctx, time.Second)
			if p, err := c.Exec(askCtx, harness.ExecConfig{Args: script("cat /bin/busybox | wc -c")}); err == nil {
				_ = p.Start(askCtx)
			}
			cancel()
			removable(ctx, t, pod)
		})
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
	removable(ctx, t, pod, waiter)
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
	removable(ctx, t, pod, waiter)
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
