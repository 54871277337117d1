package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/log"
)

// DefaultTimeout bounds a command without a shorter deadline. QEMU greets early
// but answers when the machine is complete; before that it waits for back ends,
// disks and the guest's CPUs, and preallocates memory. On two slow CPUs on
// which nine guests booted, one did not answer for more than 5 s.
const DefaultTimeout = 30 * time.Second

// quitTimeout bounds the command after which QEMU is killed anyway.
const quitTimeout = 5 * time.Second

// Timeout returns how long a command may take; 0 is as long as its context allows.
func Timeout(command string) time.Duration {
	switch command {
	case "quit":
		return quitTimeout
	case "dump-guest-memory":
		return 0 // the time depends on the guest's memory, which the caller knows
	}
	return DefaultTimeout
}

// limited returns a context that ends with a command's time.
func limited(ctx context.Context, limit time.Duration, command string) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, &TimeoutError{Command: command, After: limit})
}

// TimeoutError means that QEMU did not answer within the command's deadline.
// Whether the command had an effect, or will have one, is unknown.
type TimeoutError struct {
	Command string
	After   time.Duration
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("no reply to %s within %v", e.Command, e.After)
}

// Is makes a TimeoutError a context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Execute runs a command and decodes its return value into out, if not nil.
// args is marshalled to JSON; nil is no arguments. It waits for the reply
// within ctx and Timeout(command). QEMU's refusal is an *Error; after any other
// error it is unknown whether the command had an effect.
func (m *Monitor) Execute(ctx context.Context, command string, args, out any) error {
	return m.ExecuteWithin(ctx, Timeout(command), command, args, out)
}

// ExecuteWithin is Execute for a command whose time depends on its arguments: it
// waits within ctx and limit. A limit of 0 is no other than ctx.
func (m *Monitor) ExecuteWithin(ctx context.Context, limit time.Duration, command string, args, out any) error {
	return m.execute(ctx, limit, Command{Execute: command, Args: args}, nil, out)
}

// ExecuteWithFile is Execute for a command that takes a file descriptor
// (getfd, add-fd). QEMU gets a duplicate; the caller owns f.
func (m *Monitor) ExecuteWithFile(ctx context.Context, command string, args, out any, f *os.File) error {
	return m.execute(ctx, Timeout(command), Command{Execute: command, Args: args}, f, out)
}

// GetFD passes f to QEMU, which keeps the duplicate under that name until a
// command that refers to the name takes it. A second descriptor with the same
// name replaces the first.
func (m *Monitor) GetFD(ctx context.Context, name string, f *os.File) error {
	return m.ExecuteWithFile(ctx, "getfd", map[string]string{"fdname": name}, nil, f)
}

func (m *Monitor) execute(ctx context.Context, limit time.Duration, cmd Command, f *os.File, out any) error {
	ctx, cancel := limited(ctx, limit, cmd.Execute)
	defer cancel()
	start := time.Now()
	value, err := m.roundTrip(ctx, cmd, f)
	trace(ctx, cmd.Execute, time.Since(start), err)
	if err != nil {
		return fmt.Errorf("execute %s: %w", cmd.Execute, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(value, out); err != nil {
		return fmt.Errorf("decode the reply to %s: %w", cmd.Execute, err)
	}
	return nil
}

// trace logs each command at debug level, to explain slow starts.
func trace(ctx context.Context, command string, took time.Duration, err error) {
	entry := log.G(ctx).WithField("command", command).WithField("took", took)
	if err != nil {
		entry = entry.WithError(err)
	}
	entry.Debug("QMP")
}

// roundTrip writes the command and waits for its reply.
func (m *Monitor) roundTrip(ctx context.Context, cmd Command, f *os.File) (json.RawMessage, error) {
	id, ch, err := m.enlist()
	if err != nil {
		return nil, err
	}
	defer m.delist(id)
	line, err := json.Marshal(struct {
		Command
		ID uint64 `json:"id"`
	}{cmd, id})
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	if err := m.acquire(ctx); err != nil {
		return nil, err
	}
	err = m.write(ctx, append(line, '\n'), f)
	if f == nil {
		m.release()
	} else {
		// QEMU keeps only the newest descriptor that it has read
		// (chardev/char-socket.c, tcp_chr_recv): let it take this one before
		// another is sent.
		defer m.release()
	}
	if err != nil {
		return nil, err
	}
	return m.await(ctx, ch)
}

func (m *Monitor) await(ctx context.Context, ch <-chan *reply) (json.RawMessage, error) {
	var r *reply
	select {
	case r = <-ch:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-m.done:
		select { // the reply may have come before the end
		case r = <-ch:
		default:
			return nil, m.Err()
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.value, nil
}

// enlist returns a new command id and the channel for its reply.
func (m *Monitor) enlist() (uint64, <-chan *reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.err != nil:
		return 0, nil, m.err
	case !m.reading:
		return 0, nil, errors.New("the monitor is not connected")
	}
	m.nextID++
	ch := make(chan *reply, 1)
	m.waiting[m.nextID] = ch
	return m.nextID, ch, nil
}

func (m *Monitor) delist(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, id)
}
