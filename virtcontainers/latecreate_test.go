package virtcontainers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// answersLate has the guest carry out a method and answer after the caller's deadline.
func (p *pod) answersLate(method string) {
	p.host.Agent.After(method, func(ctx context.Context, _ proto.Message) error {
		<-ctx.Done()
		return ctx.Err()
	})
}

// A create that the guest finishes after the engine's deadline leaves nothing in it,
// and its id can be used again.
func TestCreateAnsweredTooLate(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.answersLate("Create")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := p.Create(ctx, p.mounted("c1", newIO(allStreams)), neverAnnounced(t)); err == nil {
		t.Fatal("the create did not fail")
	}
	p.checkContainerGone("c1")
	p.host.Agent.After("Create", nil)
	p.create("c1")
}

// A create that the guest begins only when its caller has gone, and the guest was asked
// to remove what it has made, leaves nothing in it.
func TestCreateBegunTooLate(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.host.Agent.Hook("Create", func(context.Context, proto.Message) error {
		cancel()
		for began := time.Now(); time.Since(began) < patience && !slices.Contains(p.host.Agent.Calls(), "Wait c1"); {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	if _, err := p.Create(ctx, p.mounted("c1", newIO(allStreams)), neverAnnounced(t)); err == nil {
		t.Fatal("the create did not fail")
	}
	p.host.Agent.Hook("Create", nil)
	time.Sleep(100 * time.Millisecond) // the guest would have made it
	p.checkContainerGone("c1")
	p.create("c1")
}

// An exec that the guest registers after the engine's deadline leaves its id free.
func TestExecAnsweredTooLate(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	c := p.run(sandboxID)
	p.answersLate("Exec")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := c.Exec(ctx, virtcontainers.ExecOptions{ID: "e1", IO: newIO(virtcontainers.Streams{})}); err == nil {
		t.Fatal("the exec did not fail")
	}
	p.host.Agent.After("Exec", nil)
	p.exec(c, "e1")
}

// The exit of a container whose creation failed is not that of the next container
// with its id, however late the guest reports it.
func TestExitOfFailedContainer(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	release := p.host.Agent.HoldEvents()
	p.host.Agent.Fail(fakeguest.Stream, errInjected)
	failed := make(chan error, 1)
	go func() {
		_, err := p.Create(t.Context(), p.mounted("c1", newIO(allStreams)), neverAnnounced(t))
		failed <- err
	}()
	eventually(t, "the removal of what was made", func() bool { return slices.Contains(p.host.Agent.Calls(), "Wait c1") })
	time.AfterFunc(200*time.Millisecond, release)
	if err := await(t, "the create's end", failed); err == nil {
		t.Fatal("the create did not fail")
	}
	p.host.Agent.Fail(fakeguest.Stream, nil)
	p.run("c1")
	time.Sleep(400 * time.Millisecond) // the exit has come by then
	if exits := p.observer.list(); len(exits) != 0 {
		t.Errorf("the exit of the container before was taken for this one's: %v", exits)
	}
	p.exits("c1", "", 3)
	p.observer.expect(t, "c1=3")
}
