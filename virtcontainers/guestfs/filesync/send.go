package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

const (
	// callTimeout bounds a call to the guest whose caller has no deadline.
	callTimeout = 10 * time.Second
	// partBytes is how much of a file goes into one change: two of them fit
	// into a request.
	partBytes = api.MaxChangeFiles/2 - 16<<10
)

// errChanged means that a file has changed since the last look.
var errChanged = errors.New("the source changes")

// errClosed aborts sending when the copy is closed.
var errClosed = errors.New("the copy is closed")

// batch is a request to the guest that is being filled.
type batch struct {
	*Copy
	changes []*api.FileChange
	bytes   int
	// steps are completed by the request's changes.
	steps []step
}

// send makes the guest do steps. If a file has changed since the look it stops
// with errChanged; with lenient it sends the file as it is.
func (c *Copy) send(ctx context.Context, steps []step, lenient bool) error {
	b := &batch{Copy: c}
	for _, s := range steps {
		var err error
		if s.want.kind == regular {
			err = b.sendFile(ctx, s, lenient)
		} else {
			err = b.add(ctx, c.change(s), &s)
		}
		if err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

// change returns the request for a step, without a file's content.
func (c *Copy) change(s step) *api.FileChange {
	change := &api.FileChange{Path: path.Join(c.target, s.path), Mode: s.want.mode, Uid: s.want.uid, Gid: s.want.gid}
	switch s.want.kind {
	case directory:
		change.Change = &api.FileChange_Directory{Directory: &api.Directory{}}
	case symlink:
		change.Change = &api.FileChange_Symlink{Symlink: s.want.link}
	case unknown, regular:
		change.Change = &api.FileChange_Remove{Remove: &api.Remove{}}
	}
	return change
}

// add adds a change to the request; if there is no room, it sends the request
// first. done is the step that this change completes, or nil.
func (b *batch) add(ctx context.Context, change *api.FileChange, done *step) error {
	size := 1 + protowire.SizeBytes(proto.Size(change)) // the field's number
	if b.bytes+size > api.MaxChangeFiles {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.changes, b.bytes = append(b.changes, change), b.bytes+size
	if done != nil {
		b.steps = append(b.steps, *done)
	}
	return nil
}

// flush sends the request and records what the guest has now. When the call
// fails, its effect is unknown.
func (b *batch) flush(ctx context.Context) error {
	if len(b.changes) == 0 {
		return nil
	}
	select {
	case <-b.closing:
		return errClosed
	default:
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := b.guest.ChangeFiles(ctx, b.changes)
	for _, s := range b.steps {
		if err == nil {
			b.sent.did(s)
		} else {
			b.sent.doubts(s)
		}
	}
	b.changes, b.steps, b.bytes = nil, nil, 0
	if errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) {
		// Something in the guest has changed the copy.
		b.sent.below("", func(p string, e entry) { b.sent[p] = entry{kind: e.kind, doubt: true} })
	}
	return err
}

// bounded returns a context with a deadline: the caller's if it has one, such as
// create_container_timeout, or else callTimeout. The guest of a busy host may take
// longer than callTimeout, and a container would fail that has time left.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}

// sendFile sends a file in parts.
func (b *batch) sendFile(ctx context.Context, s step, lenient bool) error {
	name := s.path
	if name == "" {
		name = b.source.name
	}
	f, err := b.source.open(s.path)
	if isMoved(err) {
		return b.changed(lenient)
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	defer f.Close()
	got, err := openEntry(f)
	if err != nil {
		return err
	}
	switch {
	case got == s.want:
	case !lenient || got.kind != regular:
		return b.changed(lenient)
	case got.size > b.source.limits.Bytes:
		return fmt.Errorf("%q has %d bytes, want at most %d: %w", name, got.size, b.source.limits.Bytes, errdefs.ErrResourceExhausted)
	}
	s.want = got
	if err := b.sendParts(ctx, f, s); err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	if after, err := openEntry(f); err != nil || after != got {
		return errors.Join(err, b.changed(lenient))
	}
	return nil
}

// changed handles a file that has changed since the look.
func (b *batch) changed(lenient bool) error {
	if lenient {
		return nil // The event leads to another look.
	}
	return errChanged
}

func openEntry(f *os.File) (entry, error) {
	st, err := statOf(f)
	if err != nil {
		return entry{}, err
	}
	e, _ := entryOf(&st)
	return e, nil
}

// sendParts sends as much of an open file as its size was at the look, or less
// if it has become shorter.
func (b *batch) sendParts(ctx context.Context, f *os.File, s step) error {
	var offset int64
	for last := false; !last; {
		content := make([]byte, min(partBytes, s.want.size-offset))
		n, err := io.ReadFull(f, content)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read: %w", err)
		}
		last = err != nil || offset+int64(n) == s.want.size
		part := &api.FilePart{Offset: uint64(offset), Content: content[:n], Last: last}
		change := b.change(s)
		change.Change = &api.FileChange_File{File: part}
		var done *step
		if last {
			// A single file may itself be a mount.
			part.InPlace = b.source.name != ""
			part.Mtime = &timestamppb.Timestamp{Seconds: s.want.mtime.Sec, Nanos: int32(s.want.mtime.Nsec)}
			done = &s
		}
		if err := b.add(ctx, change, done); err != nil {
			return err
		}
		offset += int64(n)
	}
	return nil
}
