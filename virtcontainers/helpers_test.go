package virtcontainers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

func TestMain(m *testing.M) {
	// The sandbox's log is not part of a test's output.
	log.L.Logger.SetLevel(logrus.PanicLevel)
	goleak.VerifyTestMain(m)
}

// patience is far longer than anything here takes.
const patience = 20 * time.Second

// newHost makes a host and checks at the test's end that nothing is left.
func newHost(t *testing.T) *fakeguest.Host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sandboxes mount, which needs root")
	}
	dir, err := os.MkdirTemp("", "kb") //nolint:usetesting // t.TempDir gives names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	host := fakeguest.New(dir)
	t.Cleanup(func() {
		checkNothingLeft(t, host)
		if err := host.Clear(); err != nil {
			t.Error(err)
		}
	})
	return host
}

// findDaemon returns the path of the external virtio-fs daemon that is
// installed, or "" if there is none.
func findDaemon() string {
	for _, path := range []string{"/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func checkNothingLeft(t *testing.T, host *fakeguest.Host) {
	t.Helper()
	left, err := host.Leftovers()
	if err != nil {
		t.Error(err)
	}
	for _, what := range left {
		t.Errorf("left: %s", what)
	}
}

// observer records what it is told.
type observer struct {
	mu      sync.Mutex
	exits   []virtcontainers.Exit
	ooms    []string
	changed chan struct{}
	// onExit, when not nil, is called with each exit.
	onExit func(virtcontainers.Exit)
	// onEnding, when not nil, is called before each container's exit.
	onEnding func(id string)
}

func newObserver() *observer { return &observer{changed: make(chan struct{})} }

func (o *observer) Exited(e virtcontainers.Exit) {
	if o.onExit != nil {
		o.onExit(e)
	}
	o.note(func() { o.exits = append(o.exits, e) })
}

func (o *observer) Ending(id string) {
	if o.onEnding != nil {
		o.onEnding(id)
	}
}

func (o *observer) OutOfMemory(id string) { o.note(func() { o.ooms = append(o.ooms, id) }) }

func (o *observer) note(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	close(o.changed)
	o.changed = make(chan struct{})
}

// list returns each exit as "c1=0" or "c1/e1=137", in order.
func (o *observer) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []string
	for _, e := range o.exits {
		name := e.ContainerID
		if e.ExecID != "" {
			name += "/" + e.ExecID
		}
		list = append(list, fmt.Sprintf("%s=%d", name, e.Status))
	}
	return list
}

// until waits until done, which is called after each event.
func (o *observer) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		o.mu.Lock()
		changed := o.changed
		o.mu.Unlock()
		if done() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s: exits so far: %v", what, o.list())
		}
	}
}

// expect waits for exactly these exits, in any order, and fails on any other.
func (o *observer) expect(t *testing.T, want ...string) {
	t.Helper()
	o.until(t, fmt.Sprintf("want exits %v", want), func() bool { return len(o.list()) >= len(want) })
	got := o.list()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("exits are %v, want %v", got, want)
	}
}

// pod is a sandbox under test.
type pod struct {
	*virtcontainers.Sandbox
	t        *testing.T
	host     *fakeguest.Host
	observer *observer
	// stopFails is set if the last Stop is expected to fail.
	stopFails bool
}

func (p *pod) expectsStopError() { p.stopFails = true }

// sandboxID is the id of every sandbox here, and of its first container.
const sandboxID = "pod"

func boot(t *testing.T, host *fakeguest.Host) *pod {
	t.Helper()
	return bootChanged(t, host, func(*virtcontainers.Options) {})
}

// bootChanged boots a sandbox with options that change has changed.
func bootChanged(t *testing.T, host *fakeguest.Host, change func(*virtcontainers.Options)) *pod {
	t.Helper()
	p, err := bootOn(t, host, host.Platform(), change)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// bootOn boots a sandbox on a platform of the host's.
func bootOn(t *testing.T, host *fakeguest.Host, platform virtcontainers.Platform, change func(*virtcontainers.Options)) (*pod, error) {
	t.Helper()
	p := &pod{t: t, host: host, observer: newObserver()}
	opts := options(p.observer)
	change(&opts)
	var err error
	p.Sandbox, err = virtcontainers.New(t.Context(), platform, opts)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		// Not after a failure: reporting what is left would hide it.
		if err := p.Stop(context.Background()); (err != nil) != p.stopFails && !t.Failed() {
			t.Errorf("Stop at the end: %v", err)
		}
	})
	return p, nil
}

func options(o virtcontainers.Observer) virtcontainers.Options {
	return virtcontainers.Options{ID: sandboxID, Hostname: "host", Config: fakeguest.Config(), Observer: o}
}

// newPod boots a sandbox on its own host.
func newPod(t *testing.T) *pod {
	t.Helper()
	return boot(t, newHost(t))
}

// newBundle makes a bundle in the host's directory.
func newBundle(t *testing.T, host *fakeguest.Host, id string) *bundle.Bundle {
	t.Helper()
	dir := filepath.Join(host.RunDir, "bundles", id)
	if err := fakeguest.WriteBundle(dir, nil); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *pod) options(id string, io virtcontainers.IO) virtcontainers.ContainerOptions {
	p.t.Helper()
	if io == nil {
		io = newIO(virtcontainers.Streams{})
	}
	return virtcontainers.ContainerOptions{ID: id, Bundle: newBundle(p.t, p.host, id), IO: io}
}

func ignore[T any](T) {}

// create makes a container; its process waits for its start.
func (p *pod) create(id string) *virtcontainers.Container {
	p.t.Helper()
	c, err := p.Create(p.t.Context(), p.options(id, nil), ignore)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// run makes and starts a container.
func (p *pod) run(id string) *virtcontainers.Container {
	p.t.Helper()
	c := p.create(id)
	p.start(initOf(p.t, c))
	return c
}

func (p *pod) start(process *virtcontainers.Process) {
	p.t.Helper()
	if err := process.Start(p.t.Context(), ignore); err != nil {
		p.t.Fatal(err)
	}
}

// exec registers a process.
func (p *pod) exec(c *virtcontainers.Container, id string) *virtcontainers.Process {
	p.t.Helper()
	e, err := c.Exec(p.t.Context(), virtcontainers.ExecOptions{ID: id, IO: newIO(virtcontainers.Streams{})})
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// exits ends a process in the guest.
func (p *pod) exits(id, execID string, status uint32) {
	p.t.Helper()
	if err := p.host.Agent.Exit(id, execID, status); err != nil {
		p.t.Fatal(err)
	}
}

// awaitStopped waits until the sandbox has ended by itself.
func (p *pod) awaitStopped() {
	p.t.Helper()
	select {
	case <-p.Stopped():
	case <-time.After(patience):
		p.t.Fatal("the sandbox does not end")
	}
}

func initOf(t *testing.T, c *virtcontainers.Container) *virtcontainers.Process {
	t.Helper()
	p, err := c.Process("")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// statusOf waits for a process's exit.
func statusOf(t *testing.T, p *virtcontainers.Process) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	exit, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return exit.Status
}

// await waits for a channel.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s does not come", what)
		panic("not reached")
	}
}

// eventually polls for what no channel signals.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// wantError fails the test unless err is of that kind and contains text.
func wantError(t *testing.T, what string, err error, is func(error) bool, text string) {
	t.Helper()
	if err == nil || !is(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got error %v, want one of another kind, naming %q", what, err, text)
	}
}
