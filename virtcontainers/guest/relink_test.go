package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// unplugged is an agent whose device can be removed and come back. It
// implements only the calls that its tests make.
type unplugged struct {
	api.GuestService
	t      *testing.T
	server *ttrpc.Server
	rpcs   chan net.Conn
	closed chan struct{}
	events chan *api.Event
	// subscribed and logs get the connections of Events and of the log.
	subscribed chan struct{}
	logs       chan net.Conn
	watched    sync.WaitGroup // the calls of Events

	mu      sync.Mutex // guards what follows
	present bool
	// silent makes Hello fail.
	silent bool
	conns  []*net.UnixConn
	park   *api.ParkRequest
	rejoin *api.RejoinRequest
}

func newUnplugged(t *testing.T) *unplugged {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	u := &unplugged{
		t: t, server: server, rpcs: make(chan net.Conn), closed: make(chan struct{}), present: true,
		events: make(chan *api.Event, 10), subscribed: make(chan struct{}, 10), logs: make(chan net.Conn, 10),
	}
	api.RegisterGuestService(server, u)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(context.Background(), u) })
	t.Cleanup(func() {
		u.remove()
		close(u.closed)
		_ = server.Close()
		serving.Wait()
	})
	return u
}

// Accept, Close and Addr implement net.Listener.
func (u *unplugged) Accept() (net.Conn, error) {
	select {
	case conn := <-u.rpcs:
		return conn, nil
	case <-u.closed:
		return nil, net.ErrClosed
	}
}

func (u *unplugged) Close() error { return nil }

func (u *unplugged) Addr() net.Addr { return &net.UnixAddr{} }

// dial is a guest.DialFunc.
func (u *unplugged) dial(_ context.Context, port uint32) (guest.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.present {
		return nil, syscall.ECONNREFUSED
	}
	host, ours := unixPair(u.t)
	u.conns = append(u.conns, ours)
	switch port {
	case api.PortRPC:
		u.rpcs <- ours
	case api.PortLog:
		u.logs <- ours
	}
	return host, nil
}

func unixPair(t *testing.T) (host, other *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if host, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if other, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	return host, other
}

// remove ends every connection, and waits until no event is sent any more.
func (u *unplugged) remove() {
	u.mu.Lock()
	u.present = false
	conns := u.conns
	u.conns = nil
	u.mu.Unlock()
	for _, conn := range conns {
		// Not Close: only an end that it reads ends ttrpc's server for it.
		_, _ = conn.CloseWrite(), conn.CloseRead()
	}
	u.watched.Wait()
}

func (u *unplugged) comeBack() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.present = true
}

func (u *unplugged) setSilent(silent bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.silent = silent
}

func (u *unplugged) Hello(context.Context, *api.HelloRequest) (*api.HelloResponse, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.silent {
		return nil, errors.New("not now")
	}
	return &api.HelloResponse{ProtocolVersion: api.ProtocolVersion}, nil
}

func (u *unplugged) Events(ctx context.Context, _ *api.EventsRequest, out api.Guest_EventsServer) error {
	u.watched.Add(1)
	defer u.watched.Done()
	u.subscribed <- struct{}{}
	for {
		select {
		case ev := <-u.events:
			if err := out.Send(ev); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (u *unplugged) Park(_ context.Context, req *api.ParkRequest) (*api.ParkResponse, error) {
	u.park = req
	return &api.ParkResponse{}, nil
}

func (u *unplugged) Rejoin(_ context.Context, req *api.RejoinRequest) (*api.RejoinResponse, error) {
	u.rejoin = req
	return &api.RejoinResponse{}, nil
}

func dialUnplugged(t *testing.T, u *unplugged) *guest.Client {
	t.Helper()
	c, err := guest.Connect(t.Context(), u.dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// following is an Events that runs.
type following struct {
	got   chan string
	ended chan error
}

func follow(ctx context.Context, c *guest.Client) following {
	f := following{make(chan string, 10), make(chan error, 1)}
	go func() {
		f.ended <- c.Events(ctx, func(ev *api.Event) { f.got <- ev.GetOom().GetContainerId() })
	}()
	return f
}

// receive waits for a value.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing came", what)
		panic("unreachable")
	}
}

// none checks that no value comes.
func none[T any](t *testing.T, what string, from <-chan T) {
	t.Helper()
	select {
	case v := <-from:
		t.Fatalf("%s: %v", what, v)
	case <-time.After(20 * time.Millisecond):
	}
}

func oom(id string) *api.Event {
	return &api.Event{Event: &api.Event_Oom{Oom: &api.OOM{ContainerId: id}}}
}

// Events go on over each new connection, and none is lost that was under way
// when the old one ended.
func TestEventsAfterRelink(t *testing.T) {
	u := newUnplugged(t)
	c := dialUnplugged(t, u)
	f := follow(t.Context(), c)
	for _, id := range []string{"c1", "c2", "c3"} {
		receive(t, "subscription", u.subscribed)
		u.events <- oom(id)
		if got := receive(t, "event", f.got); got != id {
			t.Errorf("event of %s, want %s", got, id)
		}
		c.Suspend()
		u.remove()
		none(t, "events ended while the device was away", f.ended)
		u.comeBack()
		if err := c.Relink(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
	receive(t, "subscription", u.subscribed)
	u.remove()
	if err := receive(t, "end", f.ended); !guest.Disconnected(err) {
		t.Errorf("a loss that was not announced: %v", err)
	}
}

// A device that was not removed after all is used by a new connection.
func TestRelinkWithoutLoss(t *testing.T) {
	u := newUnplugged(t)
	c := dialUnplugged(t, u)
	f := follow(t.Context(), c)
	receive(t, "subscription", u.subscribed)
	c.Suspend()
	c.Suspend()
	if err := c.Relink(t.Context()); err != nil {
		t.Fatal(err)
	}
	receive(t, "subscription", u.subscribed)
	none(t, "end", f.ended)
	if err := c.Relink(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("without Suspend: %v", err)
	}
}

// A call that waits to pass is made over the connection that is there then.
func TestWaitingCallAfterRelink(t *testing.T) {
	u := newUnplugged(t)
	c := dialUnplugged(t, u)
	waits, passes := make(chan struct{}), make(chan struct{})
	c.Guard(func(context.Context, string) (func(), error) {
		close(waits)
		<-passes
		return func() {}, nil
	})
	called := make(chan error, 1)
	go func() { called <- c.Ping(context.Background()) }()
	receive(t, "call", waits)
	c.Suspend()
	u.remove()
	u.comeBack()
	if err := c.Relink(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(passes)
	if err := receive(t, "answer", called); err != nil {
		t.Error(err)
	}
}

// The log goes on too.
func TestLogAfterRelink(t *testing.T) {
	u := newUnplugged(t)
	c := dialUnplugged(t, u)
	ctx, l := withLog(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.ForwardLog(ctx) }()
	for n, line := range []string{"one", "two", "three"} {
		conn := receive(t, "log connection", u.logs)
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			t.Fatal(err)
		}
		c.Suspend()
		u.remove()
		if got := l.await(t, n+1)[n]["msg"]; got != line {
			t.Errorf("logged %v, want %s", got, line)
		}
		none(t, "the log ended while the device was away", ended)
		u.comeBack()
		if err := c.Relink(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, "log connection", u.logs)
	u.remove()
	if err := receive(t, "end", ended); err != nil {
		t.Error(err)
	}
}

// A Relink that fails, because nothing listens in time or the agent does not greet,
// leaves the Client suspended.
func TestRelinkFails(t *testing.T) {
	u := newUnplugged(t)
	c := dialUnplugged(t, u)
	f := follow(t.Context(), c)
	receive(t, "subscription", u.subscribed)
	c.Suspend()
	u.remove()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errInjected)
	defer cancel()
	if err := c.Relink(ctx); !errors.Is(err, errInjected) {
		t.Errorf("nothing listens: %v", err)
	}
	u.comeBack()
	u.setSilent(true)
	if err := c.Relink(t.Context()); err == nil {
		t.Error("an agent that does not greet was accepted")
	}
	none(t, "end", f.ended)
	u.setSilent(false)
	if err := c.Relink(t.Context()); err != nil {
		t.Fatal(err)
	}
	receive(t, "subscription", u.subscribed)
}

// Close, and the end of a context, end all waits for Relink.
func TestSuspensionEnds(t *testing.T) {
	for _, closes := range []bool{true, false} {
		u := newUnplugged(t)
		c := dialUnplugged(t, u)
		ctx, cancel := context.WithCancel(t.Context())
		f := follow(ctx, c)
		receive(t, "subscription", u.subscribed)
		logEnd := make(chan error, 1)
		go func() { logEnd <- c.ForwardLog(ctx) }()
		receive(t, "log connection", u.logs)
		c.Suspend()
		u.remove()
		none(t, "end", f.ended)
		if closes {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		} else {
			cancel()
		}
		if err := receive(t, "end", f.ended); !guest.Disconnected(err) {
			t.Errorf("events ended with %v", err)
		}
		receive(t, "end of the log", logEnd)
		cancel()
		c.Suspend()
		u.comeBack()
		if err := c.Relink(t.Context()); closes && !errdefs.IsFailedPrecondition(err) || !closes && err != nil {
			t.Errorf("Relink after closed=%v: %v", closes, err)
		}
	}
}

// A Client that is closed while it connects again keeps nothing open (goleak).
func TestCloseDuringRelink(t *testing.T) {
	u := newUnplugged(t)
	dialled := make(chan struct{})
	var c *guest.Client
	again := false
	dial := func(ctx context.Context, port uint32) (guest.Conn, error) {
		if again {
			close(dialled)
			_ = c.Close()
		}
		return u.dial(ctx, port)
	}
	c, err := guest.Connect(t.Context(), dial)
	if err != nil {
		t.Fatal(err)
	}
	again = true
	c.Suspend()
	if err := c.Relink(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
	receive(t, "dial", dialled)
}

// Park and Rejoin, and Relink, pass a guard that lets no call pass.
func TestParkAndRejoin(t *testing.T) {
	u := newUnplugged(t)
	c := dialUnplugged(t, u)
	c.Guard(func(context.Context, string) (func(), error) { return nil, errInjected })
	inputs := []*api.ParkedInput{{ContainerId: "c1", ExecId: "e1", Bytes: 5}}
	if err := c.Park(t.Context(), inputs); err != nil {
		t.Fatal(err)
	}
	if got := u.park.GetInputs(); len(got) != 1 || got[0].GetContainerId() != "c1" || got[0].GetExecId() != "e1" || got[0].GetBytes() != 5 {
		t.Errorf("the agent was told %v", u.park)
	}
	c.Suspend()
	if err := c.Relink(t.Context()); err != nil {
		t.Fatal(err)
	}
	var last []byte
	for range 2 {
		before := time.Now()
		req := &api.RejoinRequest{Containers: []*api.RenamedContainer{{From: "c1", To: "c2"}}}
		if err := c.Rejoin(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		got := u.rejoin
		if at := got.GetHostTime().AsTime(); at.Before(before) || at.After(time.Now()) || got.GetContainers()[0].GetTo() != "c2" {
			t.Errorf("the agent was told %v", got)
		}
		if len(got.GetEntropy()) != api.EntropyBytes || bytes.Equal(got.GetEntropy(), last) {
			t.Errorf("entropy %x after %x", got.GetEntropy(), last)
		}
		last = got.GetEntropy()
	}
	if _, err := c.Task().Pids(t.Context(), &task.PidsRequest{}); !errors.Is(err, errInjected) {
		t.Errorf("a call that is guarded: %v", err)
	}
}
