package events

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// queueSize bounds the number of events that wait for the engine.
	queueSize = 4096
	// connectTimeout bounds connecting to the engine, minPause and maxPause the
	// time between two attempts.
	connectTimeout     = 5 * time.Second
	minPause, maxPause = 50 * time.Millisecond, 2 * time.Second
	// maxRefusals is how often the engine may answer an event with an error before the
	// event is dropped, some 11 s after it was sent first: later ones wait for it.
	maxRefusals = 10
	// answerTimeout is how long a connected engine may take to accept an event. The
	// connection of an engine that dies ends immediately. One that is stopped (by
	// SIGSTOP or the freezer) finds every attempt in its socket when it continues, even
	// those that have timed out, and would report the event that many times.
	answerTimeout = 10 * time.Minute
)

// Publisher forwards events to one engine.
type Publisher struct {
	namespace string
	address   string
	queue     chan *types.Envelope
	// stop ends the goroutine; done is closed when it has ended.
	stop context.CancelFunc
	done chan struct{}

	mu     sync.RWMutex // guards closed, and the queue against its closing
	closed bool
}

// NewPublisher starts a publisher of the namespace's events. address is the
// engine's ttrpc socket, with or without "unix://"; with "" events are only
// logged, at debug level.
func NewPublisher(ctx context.Context, namespace, address string) *Publisher {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &Publisher{
		namespace: namespace, address: strings.TrimPrefix(address, "unix://"),
		queue: make(chan *types.Envelope, queueSize), stop: stop, done: make(chan struct{}),
	}
	go p.run(ctx)
	return p
}

// Publish queues an event. After Close it drops the event: a request may still be
// in progress when the shim ends.
func (p *Publisher) Publish(ctx context.Context, topic string, event proto.Message) {
	value, err := typeurl.MarshalAnyToProto(event)
	if err != nil {
		log.G(ctx).WithError(err).Errorf("encode event %s", topic)
		return
	}
	env := &types.Envelope{Timestamp: timestamppb.Now(), Namespace: p.namespace, Topic: topic, Event: value}
	if err := p.enqueue(env); err != nil {
		log.G(ctx).WithError(err).WithField("topic", topic).Error("event dropped")
	}
}

var (
	errClosed = errors.New("the shim has ended")
	errFull   = errors.New("the engine has not accepted an event for too long")
)

func (p *Publisher) enqueue(env *types.Envelope) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return errClosed
	}
	select {
	case p.queue <- env:
		return nil
	default:
		return errFull
	}
}

// Close forwards what is queued, as long as ctx allows, and stops.
func (p *Publisher) Close(ctx context.Context) error {
	defer p.stop()
	p.endQueue()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("forward last events: %w", context.Cause(ctx))
	}
}

func (p *Publisher) endQueue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.queue)
	}
}

func (p *Publisher) run(ctx context.Context) {
	defer close(p.done)
	var conn connection
	defer conn.close()
	for env := range p.queue {
		if p.address == "" {
			log.G(ctx).WithField("topic", env.Topic).Debug("event")
			continue
		}
		if !p.forward(ctx, &conn, env) {
			return
		}
	}
}

// forward sends one event until the engine has accepted it, or refused it for good;
// false means that ctx ended first.
func (p *Publisher) forward(ctx context.Context, conn *connection, env *types.Envelope) bool {
	refusals := 0
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		old := conn.client != nil
		err := conn.send(ctx, p.address, env)
		if err != nil && old && !isRefusal(err) {
			conn.close() // the engine may listen with another socket by now
			err = conn.send(ctx, p.address, env)
		}
		if err == nil {
			return true
		}
		if isRefusal(err) {
			refusals++
		} else {
			conn.close()
		}
		entry := log.G(ctx).WithError(err).WithField("topic", env.Topic)
		if refusals >= maxRefusals || status.Code(err) == codes.InvalidArgument {
			entry.Error("the engine refuses an event: it is dropped")
			return true
		}
		entry.Warn("the engine did not accept an event, will try again")
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// isRefusal reports whether the engine has answered with an error. It may do so while
// it starts or ends, or whenever it gets this event. An event that is invalid
// (codes.InvalidArgument, containerd's core/events/exchange) stays so.
func isRefusal(err error) bool {
	_, answered := status.FromError(err)
	switch status.Code(err) {
	case codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return false
	}
	return answered
}

// connection is a ttrpc connection that is made on first use.
type connection struct{ client *ttrpc.Client }

func (c *connection) send(ctx context.Context, address string, env *types.Envelope) error {
	if c.client == nil {
		conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "unix", address)
		if err != nil {
			return fmt.Errorf("connect to engine: %w", err)
		}
		c.client = ttrpc.NewClient(conn)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := events.NewTTRPCEventsClient(c.client).Forward(ctx, &events.ForwardRequest{Envelope: env})
	if err != nil {
		return fmt.Errorf("forward event: %w", err)
	}
	return nil
}

func (c *connection) close() {
	if c.client != nil {
		_ = c.client.Close()
		c.client = nil
	}
}
