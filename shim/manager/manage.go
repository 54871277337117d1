package manager

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/shim/journal"
	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/shim/tracing"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// manage traces a sandbox and offers it on its management socket.
func manage(calls *prom.Durations, lines *journal.Journal, tracer *tracing.Tracer) func(context.Context, *virtcontainers.Sandbox, string) (func() error, error) {
	return func(ctx context.Context, s *virtcontainers.Sandbox, dir string) (func() error, error) {
		server, err := management.Listen(ctx, dir, management.Source{
			Sandbox: s, Calls: calls, Log: lines, Profiles: s.Config().Runtime.Profiles,
		})
		if err != nil {
			return nil, err
		}
		detach := tracer.Attach(s)
		return func() error {
			detach()
			return server.Close()
		}, nil
	}
}

// observed returns an interceptor that measures how long the engine's calls take,
// except for Wait and WaitSandbox, whose time is that of a process or a sandbox.
func observed(calls *prom.Durations) ttrpc.UnaryServerInterceptor {
	return func(ctx context.Context, decode ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
		start := time.Now()
		answer, err := method(ctx, decode)
		if name := action(info.FullMethod); !strings.HasPrefix(name, "wait") {
			calls.Observe(name, time.Since(start))
		}
		return answer, err
	}
}

var word = regexp.MustCompile(`([a-z])([A-Z])`)

// action is a method's name as Kata Containers' metrics have it: "close_io".
func action(method string) string {
	method = method[strings.LastIndexByte(method, '/')+1:]
	return strings.ToLower(word.ReplaceAllString(method, "${1}_$2"))
}
