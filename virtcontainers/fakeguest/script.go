package fakeguest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
)

// Things that happen on the agent's side beyond its calls, which are named
// like the methods of the Task and Guest services ("Create", "Hello").
const (
	// OpenTransport happens before a machine gets its vsock.
	OpenTransport = "OpenTransport"
	// Dial, followed by a blank and a port, is a connection to that port.
	Dial = "Dial"
	// Stream is a stdio connection that requests to be bound (api.StreamOpen).
	Stream = "Stream"
	// Starting is while an exec is being started, which does not end with the call. An
	// error fails the start.
	Starting = "Starting"
)

// Hook is called before a call takes effect. ctx is the call's, and also ends
// with the machine. An error becomes the call's answer.
type Hook func(ctx context.Context, req proto.Message) error

type script struct {
	mu    sync.Mutex // guards what follows
	hooks map[string]Hook
	after map[string]Hook
	calls []string
	// version is what Hello answers; 0 is the real one.
	version uint32
}

func newScript() script {
	return script{hooks: make(map[string]Hook), after: make(map[string]Hook)}
}

// Hook sets the function that is called at each call of a method; nil removes
// it.
func (a *Agent) Hook(method string, h Hook) {
	a.script.mu.Lock()
	defer a.script.mu.Unlock()
	a.script.hooks[method] = h
}

// After sets the function that is called after a call of a Task method, or of a
// Guest method that changes the guest, has taken effect and before its answer; nil
// removes it.
func (a *Agent) After(method string, h Hook) {
	a.script.mu.Lock()
	defer a.script.mu.Unlock()
	a.script.after[method] = h
}

// Fail makes a method answer with an error, until it is set to nil. The call
// then has no effect.
func (a *Agent) Fail(method string, err error) {
	a.Hook(method, func(context.Context, proto.Message) error { return err })
}

// Hang makes a method answer nothing while the call and the machine live. It
// returns a channel that receives a value for each call that hangs.
func (a *Agent) Hang(method string) <-chan struct{} {
	hanging := make(chan struct{}, 100)
	a.Hook(method, func(ctx context.Context, _ proto.Message) error {
		hanging <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	return hanging
}

// Calls lists the calls so far, in order: the method, and its container or exec
// if it names one ("Start c1", "Start c1/exec").
func (a *Agent) Calls() []string {
	a.script.mu.Lock()
	defer a.script.mu.Unlock()
	return slices.Clone(a.script.calls)
}

func (s *script) enter(ctx, life context.Context, method string, req proto.Message) error {
	s.mu.Lock()
	s.calls = append(s.calls, strings.TrimSpace(method+" "+subject(req)))
	hook := s.hooks[method]
	s.mu.Unlock()
	return run(ctx, life, hook, req)
}

func (s *script) leave(ctx, life context.Context, method string, req proto.Message) error {
	s.mu.Lock()
	hook := s.after[method]
	s.mu.Unlock()
	return run(ctx, life, hook, req)
}

// starting does what the script says about an exec that is being started.
func (a *Agent) starting(req proto.Message) error {
	a.script.mu.Lock()
	hook := a.script.hooks[Starting]
	a.script.mu.Unlock()
	return run(a.lifetime(), a.lifetime(), hook, req)
}

func run(ctx, life context.Context, hook Hook, req proto.Message) error {
	if hook == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	return hook(ctx, req)
}

// subject names the process that a request is about.
func subject(req proto.Message) string {
	var id, execID string
	if r, ok := req.(interface{ GetID() string }); ok {
		id = r.GetID()
	}
	if r, ok := req.(interface{ GetContainerId() string }); ok {
		id = r.GetContainerId()
	}
	if r, ok := req.(interface{ GetExecID() string }); ok {
		execID = r.GetExecID()
	}
	if r, ok := req.(interface{ GetExecId() string }); ok {
		execID = r.GetExecId()
	}
	if execID == "" {
		return id
	}
	return id + "/" + execID
}
