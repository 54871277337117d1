package tracing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the format of a batch. A shim that was started before an upgrade
// may meet a newer kata-runtime.
const Version = 1

// Batch is what one process sends.
type Batch struct {
	Version int `json:"version"`
	// Endpoint is the receiver's URL; empty for the environment's.
	Endpoint string `json:"endpoint,omitempty"`
	// User and Password are for HTTP's basic authentication.
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	// Resource describes the pod: OpenTelemetry's attributes of a resource.
	Resource map[string]string `json:"resource"`
	Spans    []Span            `json:"spans"`
}

// Span is one span of a trace.
type Span struct {
	// Trace, ID and Parent are lower-case hexadecimal; Parent may be empty.
	Trace  string `json:"trace"`
	ID     string `json:"id"`
	Parent string `json:"parent,omitempty"`
	Name   string `json:"name"`
	// Server marks the call of another program.
	Server bool `json:"server,omitempty"`
	// Guest marks what the guest reported, which cannot be verified.
	Guest      bool              `json:"guest,omitempty"`
	Start      time.Time         `json:"start"`
	End        time.Time         `json:"end"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Error is why it failed; empty if it did not.
	Error string `json:"error,omitempty"`
}

// maxBatch bounds a batch's JSON, in bytes.
const maxBatch = 8 << 20

// parts splits a batch into those that ReadBatch takes.
func (b *Batch) parts() []*Batch {
	var parts []*Batch
	room := 0
	for _, s := range b.Spans {
		if n := s.most(); len(parts) == 0 || n > room {
			part := *b
			part.Spans = nil
			parts, room = append(parts, &part), maxBatch-b.mostHead()
		}
		last := parts[len(parts)-1]
		last.Spans = append(last.Spans, s)
		room -= s.most()
	}
	return parts
}

// mostEscaped is how many bytes of JSON a byte of text becomes at most: "\u0000".
const mostEscaped = 6

// mostFields bounds the JSON of a span or a batch without its texts, in bytes.
const mostFields = 1 << 10

// most returns the most bytes that a span has as JSON.
func (s *Span) most() int {
	return mostFields + mostEscaped*(len(s.Name)+len(s.Error)) + mostOf(s.Attributes)
}

// mostHead is most for a batch without spans.
func (b *Batch) mostHead() int {
	return mostFields + mostEscaped*(len(b.Endpoint)+len(b.User)+len(b.Password)) + mostOf(b.Resource)
}

func mostOf(attributes map[string]string) (n int) {
	for key, value := range attributes {
		n += len(`"":"",`) + mostEscaped*(len(key)+len(value))
	}
	return n
}

// ReadBatch reads the batch that a shim wrote.
func ReadBatch(in io.Reader) (*Batch, error) {
	var b Batch
	if err := json.NewDecoder(io.LimitReader(in, maxBatch)).Decode(&b); err != nil {
		return nil, fmt.Errorf("decode batch of spans: %w", err)
	}
	if b.Version != Version {
		return nil, fmt.Errorf("decode batch of spans: format version %d, want %d: the shim is of another release", b.Version, Version)
	}
	for _, s := range b.Spans {
		if len(s.Trace) != traceDigits || len(s.ID) != spanDigits || s.Parent != "" && len(s.Parent) != spanDigits ||
			!isHex(s.Trace+s.ID+s.Parent) {
			return nil, errors.New("decode batch of spans: an id is not hexadecimal, or has the wrong length")
		}
	}
	return &b, nil
}
