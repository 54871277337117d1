// Package export sends the spans of a shim (shim/tracing) to a receiver of
// OpenTelemetry's protocol, OTLP over HTTP. It runs in kata-runtime, never in a
// shim.
package export

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/katabox/katabox/shim/tracing"
)

const (
	// defaultEndpoint is where OpenTelemetry's specification expects a receiver.
	defaultEndpoint = "http://localhost:4318/v1/traces"
	// defaultPath is the path of a receiver's traces, unless the endpoint has one.
	defaultPath = "/v1/traces"
	// requestTimeout bounds one request, and retryTime all of them.
	requestTimeout, retryTime = 10 * time.Second, 5 * time.Second
)

// The names of the services whose spans these are.
const hostService, guestService = "kata", "kata-agent"

// Run sends the batch that it reads.
func Run(ctx context.Context, in io.Reader) error {
	b, err := tracing.ReadBatch(in)
	if err != nil {
		return err
	}
	to, err := endpoint(b.Endpoint)
	if err != nil {
		return err
	}
	client := otlptracehttp.NewClient(options(b, to)...)
	if err := client.Start(ctx); err != nil {
		return fmt.Errorf("prepare to send traces: %w", err)
	}
	err = client.UploadTraces(ctx, spans(b))
	if err != nil {
		err = fmt.Errorf("send traces: %w", err)
	}
	return errors.Join(err, client.Stop(context.WithoutCancel(ctx)))
}

func options(b *tracing.Batch, endpoint string) []otlptracehttp.Option {
	list := []otlptracehttp.Option{
		otlptracehttp.WithTimeout(requestTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: retryTime / 10, MaxInterval: retryTime, MaxElapsedTime: retryTime,
		}),
	}
	if endpoint != "" {
		list = append(list, otlptracehttp.WithEndpointURL(endpoint))
	}
	if b.User != "" {
		basic := base64.StdEncoding.EncodeToString([]byte(b.User + ":" + b.Password))
		list = append(list, otlptracehttp.WithHeaders(map[string]string{"Authorization": "Basic " + basic}))
	}
	return list
}

// endpoint returns the receiver's URL, or "" if the environment has it.
func endpoint(configured string) (string, error) {
	if configured == "" {
		if cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) == "" {
			return defaultEndpoint, nil
		}
		if cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")) == "grpc" {
			return "", errors.New("the environment's receiver of traces is one of gRPC, and traces are sent by HTTP: " +
				"name the receiver's HTTP port in runtime.jaeger_endpoint")
		}
		return "", nil
	}
	u, err := url.Parse(configured)
	if err != nil {
		return "", fmt.Errorf("endpoint of traces: %w", err)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = defaultPath
	}
	return u.String(), nil
}

// spans are the batch's, those of the host and those that the guest reported as
// two services.
func spans(b *tracing.Batch) []*otlp.ResourceSpans {
	var host, guest []*otlp.Span
	for _, s := range b.Spans {
		if s.Guest {
			guest = append(guest, span(s))
		} else {
			host = append(host, span(s))
		}
	}
	var list []*otlp.ResourceSpans
	for _, part := range []struct {
		service string
		spans   []*otlp.Span
	}{{hostService, host}, {guestService, guest}} {
		if len(part.spans) == 0 {
			continue
		}
		of := maps.Clone(b.Resource)
		if of == nil {
			of = make(map[string]string)
		}
		of["service.name"] = part.service
		list = append(list, &otlp.ResourceSpans{
			Resource:   &resource.Resource{Attributes: attributes(of)},
			ScopeSpans: []*otlp.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "katabox"}, Spans: part.spans}},
		})
	}
	return list
}

func span(s tracing.Span) *otlp.Span {
	out := &otlp.Span{
		TraceId: digits(s.Trace), SpanId: digits(s.ID), ParentSpanId: digits(s.Parent), Name: s.Name, Kind: otlp.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(s.Start.UnixNano()), EndTimeUnixNano: uint64(s.End.UnixNano()), Attributes: attributes(s.Attributes),
	}
	if s.Server {
		out.Kind = otlp.Span_SPAN_KIND_SERVER
	}
	if s.Error != "" {
		out.Status = &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: strings.ToValidUTF8(s.Error, "?")}
	}
	return out
}

// digits decodes an id that tracing.ReadBatch has checked.
func digits(id string) []byte {
	raw, _ := hex.DecodeString(id)
	return raw
}

func attributes(values map[string]string) []*common.KeyValue {
	var list []*common.KeyValue
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text := &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(values[key], "?")}
		list = append(list, &common.KeyValue{Key: key, Value: &common.AnyValue{Value: text}})
	}
	return list
}
