package virtcontainers_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

var allStreams = virtcontainers.Streams{Stdin: true, Stdout: true, Stderr: true}

// mounted is the options of a container whose rootfs the sandbox mounts.
func (p *pod) mounted(id string, io virtcontainers.IO) virtcontainers.ContainerOptions {
	opts := p.options(id, io)
	opts.Rootfs = []*types.Mount{{Type: "bind", Source: p.t.TempDir(), Options: []string{"rbind", "rw"}}}
	return opts
}

// checkContainerGone checks that a create that failed left the sandbox as it
// was.
func (p *pod) checkContainerGone(id string) {
	p.t.Helper()
	if n := p.host.Agent.Containers(); n != 0 {
		p.t.Errorf("%d containers are left in the guest", n)
	}
	left, err := p.host.Leftovers()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, what := range left {
		if strings.Contains(what, filepath.Join(sandboxID, id)) || strings.Contains(what, "bundles") {
			p.t.Errorf("left: %s", what)
		}
	}
	if _, err := p.Container(id); !errdefs.IsNotFound(err) {
		p.t.Errorf("the container is there: %v", err)
	}
	if !p.Empty() {
		p.t.Error("the sandbox is not empty")
	}
	if len(p.observer.list()) != 0 {
		p.t.Errorf("exits: %v", p.observer.list())
	}
}

func neverAnnounced(t *testing.T) func(*virtcontainers.Container) {
	return func(*virtcontainers.Container) { t.Error("a container that failed was announced") }
}

func TestCreate(t *testing.T) {
	p := newPod(t)
	io := newIO(allStreams)
	announced := false
	c, err := p.Create(t.Context(), p.mounted(sandboxID, io), func(c *virtcontainers.Container) {
		announced = c.ID == sandboxID
	})
	if err != nil || !announced {
		t.Fatalf("announced %v: %v", announced, err)
	}
	if spec := string(p.host.Agent.Spec(sandboxID)); !strings.Contains(spec, api.GuestSharedDir+"/pod/rootfs") {
		t.Errorf("the guest's spec names no rootfs in the share: %s", spec)
	}
	if found, err := p.Container(sandboxID); err != nil || found != c || p.Empty() {
		t.Errorf("found %v, %v", found, err)
	}
	if io.isHeld() {
		t.Error("the input is held before the start: a client that cannot call CloseIO yet cannot end it")
	}
	p.start(initOf(t, c))
	if !io.isHeld() {
		t.Error("the input ends with the engine that started the process")
	}
	for _, text := range []string{"out", "put"} {
		if err := p.host.Agent.Write(sandboxID, "", text); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.host.Agent.WriteError(sandboxID, "", "error"); err != nil {
		t.Fatal(err)
	}
	if err := io.write("input"); err != nil {
		t.Fatal(err)
	}
	initOf(t, c).CloseStdin()
	if got, err := p.host.Agent.ReadInput(sandboxID, ""); got != "input" || err != nil {
		t.Errorf("the process read %q, %v", got, err)
	}
	p.exits(sandboxID, "", 0)
	if status := statusOf(t, initOf(t, c)); status != 0 {
		t.Errorf("status %d", status)
	}
	if stdout, stderr := io.output(); stdout != "output" || stderr != "error" {
		t.Errorf("output %q, %q when the exit was reported", stdout, stderr)
	}
	if _, err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if !io.isClosed() {
		t.Error("the stdio is not closed")
	}
}

func TestCreateFailpoints(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"rootfs", "volumes", "devices", "size", "hugepages", "create", "sockets", "streams"} {
		t.Run(step, func(t *testing.T) {
			host, o := newHost(t), newObserver()
			platform := host.Platform()
			platform.Failpoint = step
			s, err := virtcontainers.New(t.Context(), platform, options(o))
			if err != nil {
				t.Fatal(err)
			}
			p := &pod{Sandbox: s, t: t, host: host, observer: o}
			opts := p.mounted("c1", newIO(allStreams))
			opts.Bundle.Spec.Annotations = map[string]string{bundle.PublishAnnotation: "api=/run/api.sock"}
			_, err = p.Create(t.Context(), opts, neverAnnounced(t))
			if err == nil || !strings.Contains(err.Error(), step+": failpoint") {
				t.Errorf("got %v", err)
			}
			p.checkContainerGone("c1")
			wantNoFile(t, p.published("api"))
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCreateFailures(t *testing.T) {
	t.Parallel()
	agent := func(method string) func(*pod, *virtcontainers.ContainerOptions) {
		return func(p *pod, _ *virtcontainers.ContainerOptions) { p.host.Agent.Fail(method, errInjected) }
	}
	tests := []struct {
		name    string
		arrange func(*pod, *virtcontainers.ContainerOptions)
		want    string
		is      func(error) bool
	}{
		{"agent refuses", func(p *pod, _ *virtcontainers.ContainerOptions) {
			p.host.Agent.Fail("Create", errdefs.ErrInvalidArgument)
		}, "create: ", errdefs.IsInvalidArgument},
		{"stream refused", agent(fakeguest.Stream), "agent: injected", nil},
		{"stream cannot be dialled", agent(fakeguest.Dial + " 1027"), "open STREAM_STDIN stream", nil},
		{"engine's ends cannot be opened", func(_ *pod, o *virtcontainers.ContainerOptions) {
			o.IO.(*testIO).connectErr = errInjected
		}, "streams: injected", nil},
		{"bad id", func(_ *pod, o *virtcontainers.ContainerOptions) { o.ID = "../c1" }, "../c1", errdefs.IsInvalidArgument},
		{"no rootfs", func(p *pod, o *virtcontainers.ContainerOptions) {
			o.Rootfs, o.Bundle.Spec.Root.Path = nil, filepath.Join(p.t.TempDir(), "none")
		}, "rootfs: ", errdefs.IsNotFound},
		{"rootfs cannot be mounted", func(_ *pod, o *virtcontainers.ContainerOptions) {
			o.Rootfs[0].Source = "/no/such/source"
		}, "/no/such/source", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPod(t)
			opts := p.mounted("c1", newIO(allStreams))
			tt.arrange(p, &opts)
			_, err := p.Create(t.Context(), opts, neverAnnounced(t))
			if tt.is == nil {
				tt.is = func(error) bool { return true }
			}
			wantError(t, "create", err, tt.is, tt.want)
			p.checkContainerGone("c1")
		})
	}
}

func TestCreateTwice(t *testing.T) {
	p := newPod(t)
	p.create(sandboxID)
	_, err := p.Create(t.Context(), p.options(sandboxID, nil), neverAnnounced(t))
	wantError(t, "the same id again", err, errdefs.IsAlreadyExists, sandboxID)
	if _, err := p.Container(sandboxID); err != nil {
		t.Errorf("the first one is gone: %v", err)
	}
}

// An exit that comes while the container is being created is reported after
// its creation.
func TestExitDuringCreate(t *testing.T) {
	p := newPod(t)
	p.host.Agent.After("Create", func(context.Context, proto.Message) error {
		return p.host.Agent.Exit("c1", "", 4)
	})
	_, err := p.Create(t.Context(), p.options("c1", nil), func(*virtcontainers.Container) {
		if exits := p.observer.list(); len(exits) != 0 {
			t.Errorf("exits before the creation was announced: %v", exits)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p.observer.expect(t, "c1=4")
}

// The exit of a container whose creation fails is not reported.
func TestExitDuringFailedCreate(t *testing.T) {
	p := newPod(t)
	p.host.Agent.After("Create", func(context.Context, proto.Message) error {
		return p.host.Agent.Exit("c1", "", 4)
	})
	io := newIO(allStreams)
	io.connectErr = errInjected
	if _, err := p.Create(t.Context(), p.mounted("c1", io), neverAnnounced(t)); !errors.Is(err, errInjected) {
		t.Errorf("got %v", err)
	}
	p.checkContainerGone("c1")
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	p.observer.expect(t)
}

func TestCreateWhileTheVMDies(t *testing.T) {
	p := newPod(t)
	hanging := p.host.Agent.Hang("Create")
	go func() {
		<-hanging
		p.host.VM().SetConsole("Kernel panic")
		p.host.VM().Die(hypervisor.ErrPowerOff)
	}()
	_, err := p.Create(t.Context(), p.mounted("c1", nil), neverAnnounced(t))
	wantError(t, "create", err, func(err error) bool { return errors.Is(err, hypervisor.ErrPowerOff) }, "Kernel panic")
	p.awaitStopped()
	p.checkContainerGone("c1")
	_, err = p.Create(t.Context(), p.options("c2", nil), neverAnnounced(t))
	wantError(t, "create afterwards", err, errdefs.IsFailedPrecondition, "is stopping")
}

// A Create that a Stop overtakes fails, and the container's exit is not
// reported although the guest has sent it.
func TestCreateWhileTheSandboxStops(t *testing.T) {
	p := newPod(t)
	created, release := make(chan struct{}), make(chan struct{})
	p.host.Agent.After("Create", func(ctx context.Context, _ proto.Message) error {
		if err := p.host.Agent.Exit("c1", "", 4); err != nil {
			return err
		}
		close(created)
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	failed := make(chan error, 1)
	go func() {
		_, err := p.Create(t.Context(), p.mounted("c1", nil), neverAnnounced(t))
		failed <- err
	}()
	await(t, "the creation in the guest", created)
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	close(release)
	if err := await(t, "the creation's end", failed); err == nil {
		t.Error("a container was created in a sandbox that stopped")
	}
	p.checkContainerGone("c1")
}
