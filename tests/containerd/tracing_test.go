package containerd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/tests/harness"
)

// receiver is an OTLP receiver that keeps what it is sent.
type receiver struct {
	mu    sync.Mutex
	spans map[string]span // by id
}

type span struct {
	*otlp.Span
	service string
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var got collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &got) != nil {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range got.GetResourceSpans() {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans[string(s.GetSpanId())] = span{s, service}
			}
		}
	}
}

// find returns a span by its service and its name.
func (r *receiver) find(service, name string) (span, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.service == service && s.GetName() == name {
			return s, true
		}
	}
	return span{}, false
}

// origin returns the service of the outermost span around s that was received,
// and whether all around it are of one trace.
func (r *receiver) origin(s span) (service string, oneTrace bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	service, oneTrace = s.service, true
	for {
		parent, ok := r.spans[string(s.GetParentSpanId())]
		if !ok {
			return service, oneTrace
		}
		service, oneTrace = parent.service, oneTrace && string(parent.GetTraceId()) == string(s.GetTraceId())
		s = parent
	}
}

// A pod's start, the guest's part included, is in the trace of the engine's
// request: the engine sends its trace context with each call of the shim.
func TestTracing(t *testing.T) {
	needVM(t)
	r := &receiver{spans: make(map[string]span)}
	server := httptest.NewServer(r)
	defer server.Close()
	newestOwn(t, func(o *harness.Options) {
		o.Kata.Extra = "[runtime]\nenable_tracing = true\n[agent.kata]\nenable_tracing = true\n"
		o.Env = append(o.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "OTEL_BSP_SCHEDULE_DELAY=200")
		o.Plugins = append(o.Plugins, "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp")
	}, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := idle(ctx, t, newPod(ctx, t, d))
		execOut(ctx, t, c, harness.ExecConfig{Args: []string{"true"}})
		for _, want := range []struct{ service, name string }{
			{"kata", "sandbox"}, {"kata", "boot"}, {"kata", "qemu"}, {"kata", "Task/Create"}, {"kata", "Task/Exec"}, {"kata", "create call"},
			{"kata-agent", "kernel"}, {"kata-agent", "init stage"}, {"containerd", "containerd.services.tasks.v1.Tasks/Create"},
		} {
			r.await(ctx, t, want.service, want.name)
		}
		for _, of := range []struct{ service, name string }{{"kata", "sandbox"}, {"kata", "boot"}, {"kata-agent", "init stage"}, {"kata", "Task/Exec"}} {
			s, _ := r.find(of.service, of.name)
			if origin, oneTrace := r.origin(s); origin != "containerd" || !oneTrace {
				t.Errorf("span %s of %s: it belongs to a span of %q, one trace: %v", of.name, of.service, origin, oneTrace)
			}
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spans) < 50 {
		t.Errorf("%d spans", len(r.spans))
	}
}

func (r *receiver) await(ctx context.Context, t *testing.T, service, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if _, ok := r.find(service, name); ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("no span %s of %s arrives: %s", name, service, r.list())
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (r *receiver) list() (text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		text += fmt.Sprintf("\n%s: %s", s.service, s.GetName())
	}
	return text
}
