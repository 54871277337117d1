package export

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/tracing"
)

const trace, one, two = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "00f067aa0ba902b8"

func batch(t *testing.T, endpoint string) io.Reader {
	t.Helper()
	zero := time.Unix(1, 0)
	data, err := json.Marshal(tracing.Batch{
		Version: tracing.Version, Endpoint: endpoint, User: "user", Password: "pass:word", Resource: map[string]string{"host.name": "node"},
		Spans: []tracing.Span{
			{Trace: trace, ID: one, Name: "Task/Create", Server: true, Start: zero, End: zero.Add(5), Error: "bad \xff", Attributes: map[string]string{"b": "2", "a": "1"}},
			{Trace: trace, ID: two, Parent: one, Name: "kernel", Guest: true, Start: zero.Add(1), End: zero.Add(2)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReader(string(data))
}

func TestRun(t *testing.T) {
	var got collector.ExportTraceServiceRequest
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || proto.Unmarshal(body, &got) != nil {
			t.Errorf("%q, %v", body, err)
		}
		if user, password, _ := r.BasicAuth(); r.URL.Path != "/v1/traces" || user != "user" || password != "pass:word" {
			t.Errorf("%s of %s, %s", r.URL, user, password)
		}
	}))
	defer receiver.Close()
	if err := Run(t.Context(), batch(t, receiver.URL)); err != nil { // without a path
		t.Fatal(err)
	}
	const want = `{"resourceSpans":[
		{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"node"}},{"key":"service.name","value":{"stringValue":"kata"}}]},
		 "scopeSpans":[{"scope":{"name":"katabox"},"spans":[{"traceId":"S/kvNXezTaajzpKdDg5HNg==","spanId":"APBnqgupArc=","name":"Task/Create","kind":"SPAN_KIND_SERVER",
		  "startTimeUnixNano":"1000000000","endTimeUnixNano":"1000000005","status":{"code":"STATUS_CODE_ERROR","message":"bad \ufffd"},
		  "attributes":[{"key":"a","value":{"stringValue":"1"}},{"key":"b","value":{"stringValue":"2"}}]}]}]},
		{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"node"}},{"key":"service.name","value":{"stringValue":"kata-agent"}}]},
		 "scopeSpans":[{"scope":{"name":"katabox"},"spans":[{"traceId":"S/kvNXezTaajzpKdDg5HNg==","spanId":"APBnqgupArg=","parentSpanId":"APBnqgupArc=","name":"kernel",
		  "kind":"SPAN_KIND_INTERNAL","startTimeUnixNano":"1000000001","endTimeUnixNano":"1000000002"}]}]}]}`
	var wanted collector.ExportTraceServiceRequest
	if err := protojson.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(protojson.Format(&wanted), protojson.Format(&got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A receiver that is busy is asked again, one that refuses is not, and neither is
// one that is not there.
func TestReceiverFails(t *testing.T) {
	var asked atomic.Int32
	var status atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1); asked.Load() == 1 {
			w.WriteHeader(int(status.Load()))
		}
	}))
	status.Store(http.StatusServiceUnavailable)
	if err := Run(t.Context(), batch(t, receiver.URL+"/x")); err != nil || asked.Load() != 2 {
		t.Errorf("busy: %v, asked %d times", err, asked.Load())
	}
	asked.Store(0)
	status.Store(http.StatusUnauthorized)
	if err := Run(t.Context(), batch(t, receiver.URL+"/x")); err == nil || !strings.Contains(err.Error(), "401") || asked.Load() != 1 {
		t.Errorf("unauthorized: %v, asked %d times", err, asked.Load())
	}
	receiver.Close()
	if err := Run(t.Context(), batch(t, receiver.URL+"/x")); err == nil {
		t.Errorf("gone: %v", err)
	}
}

func TestEndpoint(t *testing.T) {
	for _, test := range []struct{ configured, env, protocol, want string }{
		{"", "", "grpc", "http://localhost:4318/v1/traces"},
		{"", "http://elsewhere:1", "", ""},
		{"", "http://elsewhere:1", "http/protobuf", ""},
		{"", "http://elsewhere:1", "grpc", "error"},
		{"https://h:4318", "http://elsewhere:1", "grpc", "https://h:4318/v1/traces"},
		{"https://h:4318/", "", "", "https://h:4318/v1/traces"},
		{"https://h/otlp/v1/traces", "", "", "https://h/otlp/v1/traces"},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", test.env)
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", test.protocol)
		got, err := endpoint(test.configured)
		if err != nil {
			got = "error"
		}
		if got != test.want {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
}
