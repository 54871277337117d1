package task

import (
	"context"
	"sync"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/shim/events"
	"github.com/katabox/katabox/virtcontainers"
)

// observer publishes events that do not result from a request.
type observer struct {
	ctx       context.Context //nolint:containedctx // the shim's own, for its logger
	publisher Publisher
	exits     *exitFIFOs
	execEnded func(containerID, execID string)
	saveExit  func(virtcontainers.Exit) error
	// saveOOM, if set, notes in a container's bundle that it ran out of memory.
	saveOOM func(containerID string) error

	mu sync.Mutex // guards ooms
	// ooms are those of the containers that run.
	ooms map[string]*oom
}

// oom is what is known of a container that ran out of memory.
type oom struct {
	// sent is when the last event was sent.
	sent time.Time
	// noted is closed when saveOOM has returned.
	noted chan struct{}
}

// oomPause is the least time between two OOM events of a container: they
// come from the guest, and must not push exits out of the queue.
const oomPause = time.Second

// noteWait bounds how long a container's end waits for the note that the container ran
// out of memory: its engine reads that when it hears of the end, by Wait.
const noteWait = 10 * time.Second

var _ virtcontainers.Observer = (*observer)(nil)

// Exited implements virtcontainers.Observer.
func (o *observer) Exited(e virtcontainers.Exit) {
	id := e.ExecID
	if id == "" {
		id = e.ContainerID
		if err := o.saveExit(e); err != nil {
			log.G(o.ctx).WithError(err).Debug("exit not saved") // needed only if the shim is killed
		}
	}
	o.publisher.Publish(o.ctx, events.TopicExit, &eventtypes.TaskExit{
		ContainerID: e.ContainerID, ID: id, Pid: uint32(e.PID),
		ExitStatus: e.Status, ExitedAt: timestamppb.New(e.At),
	})
	if e.ExecID != "" {
		o.execEnded(e.ContainerID, e.ExecID)
		return
	}
	o.exits.exited(e, func(err error) { log.G(o.ctx).WithError(err).Debug("exit FIFO") })
}

// OutOfMemory implements virtcontainers.Observer. The note is written concurrently
// with the events that follow, because the bundle's disk may be slow.
func (o *observer) OutOfMemory(containerID string) {
	of, first := o.allowOOM(containerID, time.Now())
	if of == nil {
		return
	}
	if first {
		go func() {
			defer close(of.noted)
			o.noteOOM(containerID)
		}()
	}
	o.publisher.Publish(o.ctx, events.TopicOOM, &eventtypes.TaskOOM{ContainerID: containerID})
}

func (o *observer) noteOOM(containerID string) {
	if o.saveOOM == nil {
		return
	}
	if err := o.saveOOM(containerID); err != nil {
		log.G(o.ctx).WithError(err).WithField("container", containerID).Warn("the engine is not told that the container ran out of memory")
	}
}

// allowOOM returns the container's oom if an event may be sent now, and whether it is
// the first.
func (o *observer) allowOOM(containerID string, now time.Time) (of *oom, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of, known := o.ooms[containerID]
	switch {
	case !known:
		of = &oom{noted: make(chan struct{})}
	case now.Sub(of.sent) < oomPause:
		return nil, false
	}
	of.sent = now
	if o.ooms == nil {
		o.ooms = make(map[string]*oom)
	}
	o.ooms[containerID] = of
	return of, !known
}

// Ending implements virtcontainers.Observer: it waits until the container's note is
// written.
func (o *observer) Ending(containerID string) {
	o.mu.Lock()
	of := o.ooms[containerID]
	delete(o.ooms, containerID)
	o.mu.Unlock()
	if of == nil {
		return
	}
	select {
	case <-of.noted:
	case <-time.After(noteWait):
		log.G(o.ctx).WithField("container", containerID).Warnf("the note that the container ran out of memory was not written within %v", noteWait)
	}
}
