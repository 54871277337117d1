package tracing

import (
	"context"
	"strings"
	"time"

	"github.com/containerd/ttrpc"
)

// call is one of the engine's calls that has ended.
type call struct {
	// method is the full one: "/containerd.task.v3.Task/Create".
	method string
	// container and exec are the request's, or empty.
	container, exec string
	start, end      time.Time
	err             error
	// parent is the header traceparent that came with it, or empty.
	parent string
}

// name is the method without its package: "Task/Create".
func (c call) name() string { return c.method[strings.LastIndexByte(c.method, '.')+1:] }

// starts reports whether the call has started a container.
func (c call) starts() bool {
	return c.err == nil && c.exec == "" && strings.HasSuffix(c.method, "/Start")
}

// mayEnclose reports whether spans of a timeline can lie within the call. Others, such
// as the Shutdown that follows each Delete, would be kept for nothing.
func (c call) mayEnclose() bool {
	switch c.method[strings.LastIndexByte(c.method, '/')+1:] {
	case "Create", "Start", "CreateSandbox", "StartSandbox":
		return true
	}
	return false
}

// quiet are methods that change nothing, and that engines call all the time, or
// that last as long as a process.
var quiet = map[string]bool{
	"Wait": true, "State": true, "Stats": true, "Pids": true, "Connect": true, "WaitSandbox": true, "SandboxStatus": true,
	"SandboxMetrics": true, "PingSandbox": true, "Platform": true, "Containers": true, "Timeline": true,
}

// Intercept is a ttrpc.UnaryServerInterceptor that records the engine's calls.
func (t *Tracer) Intercept(ctx context.Context, decode ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	if quiet[info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]] {
		return method(ctx, decode)
	}
	c := call{method: info.FullMethod, start: time.Now(), parent: header(ctx)}
	answer, err := method(ctx, func(request any) error {
		err := decode(request)
		c.container, c.exec = subject(request)
		return err
	})
	c.end, c.err = time.Now(), err
	t.add(c)
	return answer, err
}

// header returns the trace context that came with a call.
func header(ctx context.Context) string {
	values, ok := ttrpc.GetMetadata(ctx)
	if !ok {
		return ""
	}
	parents, _ := values.Get("traceparent")
	if len(parents) != 1 {
		return ""
	}
	return parents[0]
}

// subject returns the container and the exec that a request names.
func subject(request any) (container, exec string) {
	switch r := request.(type) {
	case interface{ GetID() string }:
		container = r.GetID()
	case interface{ GetSandboxID() string }:
		container = r.GetSandboxID()
	}
	if r, ok := request.(interface{ GetExecID() string }); ok {
		exec = r.GetExecID()
	}
	return container, exec
}
