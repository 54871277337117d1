package hostile

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// pod is a pod with one container and the pause container.
type pod struct {
	t      *testing.T
	daemon *harness.Daemon
	*harness.Pod
	idle *harness.Container
	// shim is the pod's shim.
	shim int
}

// newPod runs a pod whose container runs args.
func newPod(ctx context.Context, t *testing.T, g guests, args ...string) *pod {
	t.Helper()
	return newPodWith(ctx, t, g, nil, args...)
}

// newPodWith is newPod with changes to the pause container's spec.
func newPodWith(ctx context.Context, t *testing.T, g guests, spec []oci.SpecOpts, args ...string) *pod {
	t.Helper()
	hp, err := g.NewPod(ctx, "pod", append(g.tell(), spec...)...)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{t: t, daemon: g.Daemon, Pod: hp}
	if p.shim = p.findShim(); p.shim == 0 {
		t.Error("the pod has no shim")
	}
	if args == nil {
		args = []string{"sleep", "100000"}
	}
	if p.idle, err = hp.Add(ctx, harness.ContainerConfig{Name: "idle", Args: args}); err == nil {
		err = p.idle.Start(ctx)
	}
	if err != nil {
		t.Error(errors.Join(err, hp.Remove(context.WithoutCancel(ctx))))
		t.FailNow()
	}
	return p
}

// remove removes the pod as a user would. It fails the test if that takes too
// long.
func (p *pod) remove(ctx context.Context) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := p.Remove(ctx); err != nil {
		p.t.Errorf("remove pod: %v", err)
	}
}

// maxShim bounds a shim's peak memory in MiB, whatever its guest has sent: some
// 60 more than at rest, with its files' pages.
const maxShim = 128

// smallShim fails the test if the shim's memory ever exceeded maxShim.
func (p *pod) smallShim() {
	p.t.Helper()
	peak := peakMiB(p.t, p.shim)
	if peak > maxShim {
		p.t.Errorf("the shim needed %d MiB, want at most %d", peak, maxShim)
	}
	p.t.Logf("the shim needed %d MiB at most", peak)
}

// answers fails the test if an exec in the pod does not work.
func (p *pod) answers(ctx context.Context) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.daemon.Context(ctx), answerTimeout)
	defer cancel()
	proc, code, err := p.idle.ExecRun(ctx, harness.ExecConfig{Args: []string{"echo", "here"}})
	if err != nil || code != 0 || proc.Out.String() != "here\n" {
		p.t.Errorf("an exec in %s: code %d, %v", p.idle.ID(), code, err)
	}
}

// told returns the guest's count of its lies.
func (p *pod) told(ctx context.Context) int {
	p.t.Helper()
	proc, code, err := p.idle.ExecRun(ctx, harness.ExecConfig{Args: []string{"cat", "/proc/sys/kernel/poweroff_cmd"}})
	if err != nil || code != 0 {
		p.t.Fatalf("read what the guest has told: code %d, %v", code, err)
	}
	text := strings.TrimSpace(proc.Out.String())
	if strings.HasPrefix(text, "/") { // the kernel's default: nothing was told yet
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		p.t.Errorf("what the guest has told: %v", err)
	}
	return n
}

// alive fails the test if the shim is gone.
func (p *pod) alive() {
	p.t.Helper()
	if pid := p.findShim(); pid != p.shim {
		p.t.Errorf("the shim is not there any more; it was process %d, and %d is its now", p.shim, pid)
	}
}

// findShim returns the PID of the pod's shim; 0 if it has none.
func (p *pod) findShim() int {
	p.t.Helper()
	procs, err := p.daemon.Processes()
	if err != nil {
		p.t.Error(err)
	}
	for _, proc := range procs {
		if proc.Kind() == harness.KindShim && strings.Contains(proc.Args, "-id "+p.Sandbox.Box.ID()+" ") {
			return proc.PID
		}
	}
	return 0
}

// neighbour starts a pod with an honest guest; works is called while another
// guest lies.
func neighbour(ctx context.Context, t *testing.T) (works func()) {
	t.Helper()
	p := newPod(ctx, t, guests{bed.honest, ""})
	t.Cleanup(func() { p.remove(bed.honest.Context(context.Background())) })
	return func() {
		t.Helper()
		p.answers(ctx)
	}
}

// beside runs a pod whose guest tells a lie beside an honest one, which works
// checks, and records the engine's events of the first.
func beside(t *testing.T, lie string) (ctx context.Context, p *pod, works func(), events *harness.Recorder) {
	t.Helper()
	ctx, g := lying(t, lie)
	works = neighbour(ctx, t)
	events = g.Record(ctx)
	t.Cleanup(events.Close)
	return ctx, newPod(ctx, t, g), works, events
}

// privileged gives a container what "docker run --privileged" does, except the
// host's devices.
func privileged() []oci.SpecOpts {
	return []oci.SpecOpts{oci.WithPrivileged, oci.WithMounts([]specs.Mount{{
		Type: "tmpfs", Source: "tmpfs", Destination: "/tmp", Options: []string{"rw"},
	}})}
}
