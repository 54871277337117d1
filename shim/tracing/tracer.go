package tracing

import (
	"context"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

const (
	// pause is the time between a call and the batch with its span: most calls
	// come in groups.
	pause = time.Second
	// maxCalls bounds the calls that wait to be sent; beyond that the oldest are
	// dropped.
	maxCalls = 1024
	// guestTimeout bounds the wait for the guest's part of a timeline, and
	// sendTimeout the sending of a batch.
	guestTimeout, sendTimeout = 5 * time.Second, 20 * time.Second
	// lastTimeout bounds the guest's part when the sandbox is about to stop.
	lastTimeout = time.Second
	// warnEvery is the least time between two warnings.
	warnEvery = time.Minute
)

// Source is a sandbox whose start is traced.
type Source interface {
	// HostTimeline returns what the host recorded, and Timeline that with the
	// guest's part, which may be missing.
	HostTimeline() *timeline.Timeline
	Timeline(ctx context.Context) *timeline.Timeline
}

// Exporter sends a batch. If last is set, it returns before the batch is sent.
type Exporter func(ctx context.Context, b *Batch, last bool) error

// Tracer is one shim's tracing. Its methods may be called from any goroutine.
type Tracer struct {
	//nolint:containedctx // the shim's own, for its goroutine and logger
	ctx    context.Context
	export Exporter
	// composer is used by the goroutine, and by Close after its end.
	composer *composer
	// interrupted has the spans of batches whose sending was ended by detach; used
	// like composer.
	interrupted []Span
	// wake has room for one: there is something to send.
	wake chan struct{}

	mu sync.Mutex // guards what follows
	// decided is set when the configuration is known, and enabled if it wants
	// traces.
	decided, enabled bool
	batch            Batch // without spans
	guest            bool
	calls            []call
	source           Source
	// final is the timeline of a sandbox that has stopped, if something of it was
	// not sent.
	final *timeline.Timeline
	// end ends the goroutine, and done is closed at its end; nil before its start.
	end    context.CancelFunc
	done   chan struct{}
	warned time.Time
}

// New makes the tracer of a sandbox's shim. Nothing is sent before Configure.
func New(ctx context.Context, sandbox string, export Exporter) *Tracer {
	return &Tracer{
		ctx: ctx, export: export, composer: newComposer(sandbox), wake: make(chan struct{}, 1), batch: Batch{Version: Version},
	}
}

// Configure tells the tracer whether to send, and where. resource describes the
// sandbox in OpenTelemetry's attributes. Only the first call counts.
func (t *Tracer) Configure(cfg *config.Config, resource map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.decided {
		return
	}
	t.decided, t.enabled, t.guest = true, cfg.Runtime.Tracing.Enabled, cfg.Agent.Tracing
	if !t.enabled {
		t.calls = nil
		return
	}
	to := cfg.Runtime.Tracing
	t.batch.Resource, t.batch.Endpoint, t.batch.User, t.batch.Password = resource, to.Endpoint, to.User, to.Password
	var ctx context.Context
	ctx, t.end = context.WithCancel(t.ctx)
	t.done = make(chan struct{})
	go t.run(ctx, t.done)
}

// add records a call.
func (t *Tracer) add(c call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.decided && !t.enabled {
		return
	}
	t.calls = append(t.calls, c)
	if len(t.calls) > maxCalls {
		t.calls = t.calls[1:]
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Attach adds the start of a sandbox to the traces. The function that it returns
// must be called before the sandbox stops: it ends a process that is sending.
func (t *Tracer) Attach(s Source) (detach func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.source = s
	return t.detach
}

// detach ends the goroutine. What was not sent is sent by Close.
func (t *Tracer) detach() {
	t.stop()
	t.mu.Lock()
	source := t.source
	t.source = nil
	enabled := t.enabled
	t.mu.Unlock()
	if source == nil || !enabled {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, lastTimeout)
	defer cancel()
	final := t.timeline(ctx, source)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.final = final
}

func (t *Tracer) stop() {
	t.mu.Lock()
	end, done := t.end, t.done
	t.mu.Unlock()
	if end != nil {
		end()
		<-done
	}
}

// Close starts to send what is left, and does not wait until it is sent.
func (t *Tracer) Close() {
	t.stop()
	t.mu.Lock()
	enabled := t.enabled
	t.mu.Unlock()
	if enabled {
		t.send(t.ctx, true)
	}
}

// run sends batches until ctx ends.
func (t *Tracer) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		t.send(ctx, false)
	}
}

func (t *Tracer) send(ctx context.Context, last bool) {
	for _, b := range t.take(ctx).parts() {
		err := t.sendPart(ctx, b, last)
		if err != nil && ctx.Err() != nil {
			t.interrupted = append(t.interrupted, b.Spans...)
		} else if err != nil && t.mayWarn() {
			log.G(ctx).WithError(err).Warnf("%d spans of the pod's traces were not sent", len(b.Spans))
		}
	}
}

func (t *Tracer) sendPart(ctx context.Context, b *Batch, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return t.export(ctx, b, last)
}

// take makes a batch of what waits to be sent.
func (t *Tracer) take(ctx context.Context) *Batch {
	t.mu.Lock()
	b, calls, source, tl := t.batch, t.calls, t.source, t.final
	t.calls, t.final = nil, nil
	t.mu.Unlock()
	b.Spans, t.interrupted = t.interrupted, nil
	for _, c := range calls {
		b.Spans = append(b.Spans, t.composer.add(c)...)
	}
	if tl == nil && source != nil && t.composer.wants() {
		ctx, cancel := context.WithTimeout(ctx, guestTimeout)
		defer cancel()
		tl = t.timeline(ctx, source)
	}
	if tl != nil {
		b.Spans = append(b.Spans, t.composer.addTimeline(tl)...)
	}
	return &b
}

func (t *Tracer) timeline(ctx context.Context, s Source) *timeline.Timeline {
	if t.guest {
		return s.Timeline(ctx)
	}
	return s.HostTimeline()
}

func (t *Tracer) mayWarn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.warned.IsZero() && time.Since(t.warned) < warnEvery {
		return false
	}
	t.warned = time.Now()
	return true
}
