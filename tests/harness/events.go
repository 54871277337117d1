package harness

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/typeurl/v2"
)

// Event is one task event of containerd.
type Event struct {
	// Topic is what follows "/tasks/": "create", "exec-started", ...
	Topic string
	// Container and Exec are its subject; Exec is empty for the init (an exit
	// names the container there too).
	Container, Exec string
	// Code is the exit code of an exit.
	Code uint32
}

// String returns the event in one word or two.
func (e Event) String() string {
	if e.Topic == "exit" {
		return fmt.Sprintf("exit(%s)=%d", e.Exec, e.Code)
	}
	return e.Topic
}

// Recorder collects the task events of a daemon.
type Recorder struct {
	// mu guards list.
	mu     sync.Mutex
	list   []Event
	cancel context.CancelFunc
	done   chan struct{}
}

// Record starts to collect; Close ends it.
func (d *Daemon) Record(ctx context.Context) *Recorder {
	ctx, cancel := context.WithCancel(d.Context(ctx))
	r := &Recorder{cancel: cancel, done: make(chan struct{})}
	envelopes, errs := d.Client.Subscribe(ctx, `topic~="/tasks/"`)
	go func() {
		defer close(r.done)
		for {
			select {
			case e := <-envelopes:
				value, err := typeurl.UnmarshalAny(e.Event)
				if err == nil {
					r.add(toEvent(strings.TrimPrefix(e.Topic, "/tasks/"), value))
				}
			case <-errs:
				return
			}
		}
	}()
	return r
}

// Close ends the collection.
func (r *Recorder) Close() {
	r.cancel()
	<-r.done
}

func (r *Recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

// Of returns the events of one container, in the order they came.
func (r *Recorder) Of(container string) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Event
	for _, e := range r.list {
		if e.Container == container {
			found = append(found, e)
		}
	}
	return found
}

// Await waits until a container had an event of this topic and returns all
// of its events.
func (r *Recorder) Await(ctx context.Context, container, topic string) ([]Event, error) {
	for {
		list := r.Of(container)
		for _, e := range list {
			if e.Topic == topic {
				return list, nil
			}
		}
		select {
		case <-ctx.Done():
			return list, fmt.Errorf("wait for event %s of %s: %w; so far %v", topic, container, ctx.Err(), list)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// toEvent converts an event, keeping what the suites compare.
func toEvent(topic string, value any) Event {
	e := Event{Topic: topic}
	switch v := value.(type) {
	case *events.TaskExit:
		e.Container, e.Exec, e.Code = v.ContainerID, v.ID, v.ExitStatus
	case *events.TaskExecAdded:
		e.Container, e.Exec = v.ContainerID, v.ExecID
	case *events.TaskExecStarted:
		e.Container, e.Exec = v.ContainerID, v.ExecID
	case interface{ GetContainerID() string }:
		e.Container = v.GetContainerID()
	}
	return e
}
