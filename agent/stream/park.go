package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/katabox/katabox/agent/api"
)

// Park ends the connection of each stream without ending the stream, and returns
// when they are closed. Streams that have ended, or that were never bound, stay as
// they are; reservations become void. sent is how many bytes of input the host has
// sent on all connections: Park waits for them. Without it, Park waits until no
// more arrive.
//
// If ctx ends first, the input keeps its connection, and Park may be called again.
// If more input is under way than is kept (maxKept), Park fails and parks nothing.
// Whatever the result, each stream can then be reserved.
func (s *Stdio) Park(ctx context.Context, sent *uint64) error {
	for _, stream := range allStreams {
		if e := s.end(stream); e != nil {
			e.allowReplacing()
		}
	}
	var read <-chan struct{}
	if s.end(api.Stream_STREAM_STDIN) != nil {
		var err error
		if read, err = s.stdin.park(sent); err != nil {
			return fmt.Errorf("park stdin: %w", err)
		}
	}
	return errors.Join(s.parkOutputs(ctx), s.awaitInput(ctx, read))
}

// parkOutputs halts the outputs, and waits until their connections are closed. It
// does not wait for the host: a write that blocks is interrupted. An output for
// which ctx does not suffice is parked a moment later.
func (s *Stdio) parkOutputs(ctx context.Context) error {
	var copied []<-chan struct{}
	for _, o := range s.outputs() {
		if done := o.park(); done != nil {
			copied = append(copied, done)
		}
	}
	for _, done := range copied {
		if !endsWithin(ctx, done) {
			return fmt.Errorf("park output: wait for the end of its copying: %w", context.Cause(ctx))
		}
	}
	return nil
}

// awaitInput waits until the input's connection is closed; a nil read is.
func (s *Stdio) awaitInput(ctx context.Context, read <-chan struct{}) error {
	if read == nil || endsWithin(ctx, read) {
		return nil
	}
	if err := s.stdin.unpark(context.Cause(ctx)); err != nil {
		return fmt.Errorf("park stdin: %w", err)
	}
	<-read // The reader has all and stops.
	return nil
}

// endsWithin waits until done is closed. It reports false if ctx ends first.
func endsWithin(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// outputs returns the outputs that were requested.
func (s *Stdio) outputs() []*output {
	var list []*output
	if s.request.Stdout {
		list = append(list, s.stdout)
	}
	if s.request.Stderr {
		list = append(list, s.stderr)
	}
	return list
}
