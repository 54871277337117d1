package fakeguest

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// Agent is the guest's side of one machine at a time. Its methods may be
// called from several goroutines.
type Agent struct {
	script script
	// parking is held by a Park, and by a connection that takes another's place.
	parking sync.Mutex

	mu sync.Mutex // guards what follows
	// up is false before a machine has the agent, and when it is dead.
	up         bool
	server     *ttrpc.Server
	rpc        *listener
	conns      map[*net.UnixConn]struct{}
	stage      stage
	containers map[string]*container
	// saved is what saved machines had in their guests, and loaded what the next
	// machine continues with; nil for one that boots.
	saved  []*memory
	loaded *memory
	events *eventQueue
	logs   *net.UnixConn
	// life ends with the machine.
	life context.Context //nolint:containedctx // the machine's, not a request's
	end  context.CancelFunc
	// serving counts the goroutines that serve connections.
	serving   sync.WaitGroup
	prepared  *api.PrepareRequest
	setup     *api.SetupSandboxRequest
	rejoined  *api.RejoinRequest
	network   *api.SetNetworkRequest
	resources *api.SetResourcesRequest
	files     []*api.FileChange
	metrics   []byte
	timeline  *api.TimelineResponse
	procFiles *api.MetricsResponse
	// volumes are the file systems on disks, by their targets.
	volumes map[string]*api.VolumeStatsResponse
	// tables are the rules for packets, by whether they are IPv6's.
	tables  map[bool][]byte
	written []byte // what ReadFile answers
	// processes is what Pids answers, if it is not nil.
	processes []*tasktypes.ProcessInfo
}

// NewAgent returns an agent that is up, without a machine; its guest has its pod. Die
// ends it.
func NewAgent() *Agent {
	a := NewBareAgent()
	a.stage = ready
	return a
}

// NewBareAgent is NewAgent for a guest that has no pod yet.
func NewBareAgent() *Agent {
	a := &Agent{script: newScript()}
	a.reset()
	return a
}

// reset makes the agent one of a new machine.
func (a *Agent) reset() {
	loaded := a.takeLoaded()
	a.Die()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up = true
	a.life, a.end = context.WithCancel(context.Background())
	a.conns = make(map[*net.UnixConn]struct{})
	a.stage, a.containers = loaded.stage, loaded.containers
	a.events, a.rpc, a.setup, a.logs = newEventQueue(), newListener(), nil, nil
	a.prepared, a.rejoined = nil, nil
	a.server = a.newServer()
	server, rpc, life := a.server, a.rpc, a.life
	a.serving.Go(func() { _ = server.Serve(life, rpc) })
}

func (a *Agent) newServer() *ttrpc.Server {
	server, err := ttrpc.NewServer()
	if err != nil {
		return nil // only an option can fail, and there is none
	}
	task.RegisterTTRPCTaskService(server, taskService{a})
	api.RegisterGuestService(server, guestService{a})
	return server
}

// Die ends every connection, as the end of the machine does, and waits until
// nothing is served any more.
func (a *Agent) Die() {
	a.mu.Lock()
	wasUp := a.up
	a.up, a.loaded = false, nil
	conns, server := a.conns, a.server
	a.conns = nil
	a.mu.Unlock()
	if !wasUp {
		return
	}
	for conn := range conns {
		_ = conn.Close()
	}
	_ = server.Close()
	a.end() // not before: a dead guest answers nothing
	a.serving.Wait()
}

// Connections is how many connections of the host are open.
func (a *Agent) Connections() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// Dial is a guest.DialFunc.
func (a *Agent) Dial(ctx context.Context, port uint32) (guest.Conn, error) {
	if err := a.enter(ctx, fmt.Sprintf("%s %d", Dial, port), nil); err != nil {
		return nil, err
	}
	host, ours, err := SocketPair()
	if err != nil {
		return nil, err
	}
	if !a.adopt(ours) {
		_, _ = host.Close(), ours.Close()
		return nil, fmt.Errorf("dial port %d: %w", port, syscall.ECONNRESET)
	}
	if err := a.serve(port, ours); err != nil {
		a.hangUp(ours)
		_ = host.Close()
		return nil, err
	}
	return host, nil
}

func (a *Agent) serve(port uint32, conn *net.UnixConn) error {
	switch port {
	case api.PortRPC:
		return a.rpc.give(tracked{conn, a})
	case api.PortLog:
		a.mu.Lock()
		a.logs = conn
		a.mu.Unlock()
		a.begin(conn, a.awaitEnd)
		return nil
	case api.PortStream:
		a.begin(conn, a.openStream)
		return nil
	case api.PortForward:
		a.begin(conn, a.openForward)
		return nil
	}
	return fmt.Errorf("dial port %d: %w", port, syscall.ECONNREFUSED)
}

// awaitEnd waits until the host closes a connection on which it sends nothing.
func (a *Agent) awaitEnd(conn *net.UnixConn) {
	_, _ = io.Copy(io.Discard, conn)
	a.hangUp(conn)
}

// begin serves a connection in its own goroutine. If the machine has ended, the
// connection has been closed already.
func (a *Agent) begin(conn *net.UnixConn, serve func(*net.UnixConn)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up {
		a.serving.Go(func() { serve(conn) })
	}
}

// adopt records a connection; it returns false if the agent is not up.
func (a *Agent) adopt(conn *net.UnixConn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.up {
		a.conns[conn] = struct{}{}
	}
	return a.up
}

// hangUp closes a connection.
func (a *Agent) hangUp(conn *net.UnixConn) {
	a.mu.Lock()
	delete(a.conns, conn)
	a.mu.Unlock()
	_ = conn.Close()
}

// Log writes text unchanged to the agent's log, once the host has opened it. It
// reports whether that was possible before ctx ended.
func (a *Agent) Log(ctx context.Context, text string) bool {
	for {
		a.mu.Lock()
		conn, up := a.logs, a.up
		a.mu.Unlock()
		if conn != nil {
			_, err := conn.Write([]byte(text))
			return err == nil
		}
		if ctx.Err() != nil || !up {
			return false
		}
		time.Sleep(time.Millisecond)
	}
}

// endLog closes the log's connection: nothing is read of it.
func (a *Agent) endLog() {
	a.mu.Lock()
	logs := a.logs
	a.logs = nil
	a.mu.Unlock()
	if logs != nil {
		a.hangUp(logs)
	}
}

// tracked is a connection that the agent forgets when it is closed.
type tracked struct {
	*net.UnixConn
	agent *Agent
}

// Close implements net.Conn.
func (t tracked) Close() error {
	t.agent.hangUp(t.UnixConn)
	return nil
}

// enter records a call and does what the script says about it.
func (a *Agent) enter(ctx context.Context, method string, req proto.Message) error {
	return a.script.enter(ctx, a.lifetime(), method, req)
}

// leave does what the script says about a call that has taken effect.
func (a *Agent) leave(ctx context.Context, method string, req proto.Message) error {
	return a.script.leave(ctx, a.lifetime(), method, req)
}

// lifetime ends with the machine that the agent is in.
func (a *Agent) lifetime() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.life == nil {
		return context.Background()
	}
	return a.life
}
