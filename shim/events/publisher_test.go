package events

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine records the ids of the events it is sent.
type engine struct {
	// refuse, if it is set, returns why it does not accept an event of that id.
	refuse func(id string) error

	mu  sync.Mutex // guards ids
	ids []string
}

func (e *engine) Forward(_ context.Context, r *events.ForwardRequest) (*emptypb.Empty, error) {
	v, err := typeurl.UnmarshalAny(r.Envelope.Event)
	if err != nil {
		return nil, err
	}
	if e.refuse != nil {
		if err := e.refuse(v.(*eventtypes.TaskStart).ContainerID); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids = append(e.ids, fmt.Sprintf("%s %s %s", r.Envelope.Namespace, r.Envelope.Topic, v.(*eventtypes.TaskStart).ContainerID))
	return &emptypb.Empty{}, nil
}

// serve listens at path until the returned function is called.
func (e *engine) serve(t *testing.T, path string) func() {
	t.Helper()
	return e.serveAt(t, listen(t, path))
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveAt serves at a listener until the returned function is called.
func (e *engine) serveAt(t *testing.T, l net.Listener) func() {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	events.RegisterTTRPCEventsService(server, e)
	done := make(chan struct{})
	go func() {
		_ = server.Serve(context.Background(), l)
		close(done)
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}

// Events arrive in order, also across a restart of the engine.
func TestOrderAcrossRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.sock")
	e := new(engine)
	ctx := context.Background()
	p := NewPublisher(ctx, "ns", "unix://"+path)
	var want []string
	publish := func(n int) {
		for range n {
			id := fmt.Sprintf("c%d", len(want))
			p.Publish(ctx, TopicStart, &eventtypes.TaskStart{ContainerID: id})
			want = append(want, "ns "+TopicStart+" "+id)
		}
	}
	publish(20) // before the engine listens
	stop := e.serve(t, path)
	publish(20)
	stop()
	publish(20)
	defer e.serve(t, path)()
	closeCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := p.Close(closeCtx); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// An event may arrive twice if the engine accepted it and died before it
	// answered.
	if diff := cmp.Diff(want, compact(e.ids)); diff != "" {
		t.Error(diff)
	}
}

// An engine that is stopped for a while has each event once when it continues:
// it then reads from its socket what was sent meanwhile, all of it.
func TestStoppedEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits 6 s")
	}
	path := filepath.Join(t.TempDir(), "e.sock")
	l := listen(t, path) // connections are made, but not accepted
	ctx := context.Background()
	p := NewPublisher(ctx, "ns", path)
	p.Publish(ctx, TopicStart, &eventtypes.TaskStart{ContainerID: "c"})
	time.Sleep(6 * time.Second) // the stop is real time: sockets have no other clock
	e := new(engine)
	defer e.serveAt(t, l)()
	p.Publish(ctx, TopicStart, &eventtypes.TaskStart{ContainerID: "d"}) // the last one in the socket
	closeCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := p.Close(closeCtx); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if diff := cmp.Diff([]string{"ns " + TopicStart + " c", "ns " + TopicStart + " d"}, e.ids); diff != "" {
		t.Error(diff)
	}
}

// An event that the engine refuses whenever it is sent does not keep the later ones
// from it. One that it refuses at first, as while it starts, is not lost.
func TestRefusedEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.sock")
	early := 3
	e := &engine{refuse: func(id string) error {
		switch {
		case id == "invalid":
			return status.Error(codes.InvalidArgument, "no such topic")
		case id == "early" && early > 0:
			early--
			return status.Error(codes.Unknown, "the exchange is not there yet")
		}
		return nil
	}}
	defer e.serve(t, path)()
	ctx := context.Background()
	p := NewPublisher(ctx, "ns", path)
	for _, id := range []string{"early", "invalid", "last"} {
		p.Publish(ctx, TopicStart, &eventtypes.TaskStart{ContainerID: id})
	}
	closeCtx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := p.Close(closeCtx); err != nil {
		t.Error(err)
	}
	<-p.done
	e.mu.Lock()
	defer e.mu.Unlock()
	if diff := cmp.Diff([]string{"ns " + TopicStart + " early", "ns " + TopicStart + " last"}, e.ids); diff != "" {
		t.Error(diff)
	}
}

// An engine that answers an event with the same error all the time does not get it.
func TestEventRefusedForGood(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits 11 s")
	}
	path := filepath.Join(t.TempDir(), "e.sock")
	e := &engine{refuse: func(id string) error {
		if id == "refused" {
			return status.Error(codes.Unknown, "no")
		}
		return nil
	}}
	defer e.serve(t, path)()
	ctx := context.Background()
	p := NewPublisher(ctx, "ns", path)
	for _, id := range []string{"refused", "last"} {
		p.Publish(ctx, TopicStart, &eventtypes.TaskStart{ContainerID: id})
	}
	closeCtx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	if err := p.Close(closeCtx); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if diff := cmp.Diff([]string{"ns " + TopicStart + " last"}, e.ids); diff != "" {
		t.Error(diff)
	}
}

func compact(ids []string) []string {
	var out []string
	for i, id := range ids {
		if i == 0 || ids[i-1] != id {
			out = append(out, id)
		}
	}
	return out
}

// Without an engine publishing does not block, and closing ends in time.
func TestNoEngine(t *testing.T) {
	ctx := context.Background()
	p := NewPublisher(ctx, "ns", filepath.Join(t.TempDir(), "none.sock"))
	for range 2 * queueSize {
		p.Publish(ctx, TopicStart, &eventtypes.TaskStart{ContainerID: "c"})
	}
	closeCtx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := p.Close(closeCtx); err == nil {
		t.Error("events were forwarded without an engine")
	}
	<-p.done
	quiet := NewPublisher(ctx, "ns", "")
	quiet.Publish(ctx, TopicStart, &eventtypes.TaskStart{ContainerID: "c"})
	if err := quiet.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A request under way may publish while the shim ends, or afterwards.
func TestPublishAmongClose(t *testing.T) {
	ctx := context.Background()
	p := NewPublisher(ctx, "ns", "")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				p.Publish(ctx, TopicStart, &eventtypes.TaskStart{ContainerID: "c"})
			}
		})
	}
	for range 2 {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if err := p.enqueue(nil); !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
}
