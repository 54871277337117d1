package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

// OpenStream connects to one of a process's stdio streams. The process must
// have been created with that stream, and either not been started or been
// parked. sent is how many bytes of the stream passed on earlier connections, as
// the guest says: any number. The file is for an output, or nil; it belongs to the
// connection from now on, also after an error.
func (c *Client) OpenStream(ctx context.Context, containerID, execID string, kind api.Stream, file OutputFile) (conn Conn, sent uint64, err error) {
	open, opened := &api.StreamOpen{ContainerId: containerID, ExecId: execID, Stream: kind}, new(api.StreamOpened)
	if file != nil {
		open.OutputFile = file.GuestPath()
	}
	conn, err = c.open(ctx, api.PortStream, open, opened)
	if err != nil {
		err = fmt.Errorf("open %s stream: %w", kind, err)
	}
	switch {
	case file == nil:
	case err == nil && opened.GetFramed():
		conn = newFramedConn(conn, file)
	default:
		_ = file.Close() // What is left of it ends with the share.
	}
	return conn, opened.GetSent(), err
}

// Forward connects to a TCP address in the guest ("127.0.0.1:80"). A reset of
// either side is one to the other (relay.Mark), with an agent that knows it.
func (c *Client) Forward(ctx context.Context, address string) (Conn, error) {
	return c.forward(ctx, address, &api.ForwardOpen{Address: address})
}

// ForwardSocket connects to a UNIX socket in a container, by its absolute path
// there: a SOCK_STREAM socket or, with seqpacket, a SOCK_SEQPACKET one, whose
// messages are each preceded by their length on the connection (relay.Packets).
// A socket of the other type is an error.
func (c *Client) ForwardSocket(ctx context.Context, containerID, path string, seqpacket bool) (Conn, error) {
	socket := &api.ContainerSocket{ContainerId: containerID, Path: path}
	open := &api.ForwardOpen{Unix: socket}
	if seqpacket {
		open = &api.ForwardOpen{Unixpacket: socket}
	}
	return c.forward(ctx, "UNIX socket "+path, open)
}

func (c *Client) forward(ctx context.Context, to string, open *api.ForwardOpen) (Conn, error) {
	open.Marked = true
	opened := new(api.ForwardOpened)
	conn, err := c.open(ctx, api.PortForward, open, opened)
	if err != nil {
		return nil, fmt.Errorf("forward to %s: %w", to, err)
	}
	return markedIf(opened.GetMarked(), conn), nil
}

// Reverse opens a connection over which the agent listens in the guest; see
// api.PortReverse.
func (c *Client) Reverse(ctx context.Context, open *api.ReverseOpen) (Conn, error) {
	opened := new(api.ReverseOpened)
	conn, err := c.open(ctx, api.PortReverse, open, opened)
	if err != nil {
		return nil, fmt.Errorf("open reverse connection: %w", err)
	}
	return markedIf(open.GetMarked() && opened.GetMarked(), conn), nil
}

func markedIf(marked bool, conn Conn) Conn {
	if marked {
		return relay.Mark(conn)
	}
	return conn
}

// answer is the agent's answer to the first frame of a connection.
type answer interface {
	proto.Message
	GetError() string
}

// openPause is the time until the second try to open a connection; it doubles for
// each further one, up to lastOpenPause: ten tries in 2.6 s.
const openPause, lastOpenPause = 5 * time.Millisecond, 1280 * time.Millisecond

// unheard are the errors of a connection that the agent, whose ports are open as long
// as it lives, has most likely not read from: its queue in the guest's kernel was full
// (virtio_transport_recv_listen in virtio_transport_common.c of Linux), or the agent
// made room for others that have not shown their key either. A connection that breaks
// after the agent has read the first frame ends alike: a later try may then be refused,
// because the stream is taken.
var unheard = []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF}

// open connects to a port and exchanges the first frames. It tries again if the agent
// has not heard it; a refusal then has the first error's text, too. Like a call, it is
// bounded if ctx has no deadline.
func (c *Client) open(ctx context.Context, port uint32, first proto.Message, reply answer) (Conn, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, CallTimeout, fmt.Errorf("the guest did not answer within %v: %w", CallTimeout, context.DeadlineExceeded))
		defer cancel()
	}
	leave, err := c.enter(ctx, fmt.Sprintf("a connection (%s)", first.ProtoReflect().Descriptor().Name()))
	if err != nil {
		return nil, err
	}
	defer leave()
	var before error
	for pause := openPause; ; pause *= 2 {
		conn, err := c.tryOpen(ctx, port, first, reply)
		if before != nil && errors.As(err, new(RefusedError)) {
			return nil, fmt.Errorf("%w (the first try: %s)", err, before.Error()) // not wrapped: the guest is there
		}
		if err == nil || pause > lastOpenPause || !wasUnheard(err) {
			return conn, err
		}
		if before == nil {
			before = err
		}
		select {
		case <-ctx.Done():
			return nil, explained(ctx, err)
		case <-time.After(pause):
		}
	}
}

func wasUnheard(err error) bool {
	return slices.ContainsFunc(unheard, func(end error) bool { return errors.Is(err, end) })
}

// tryOpen is open, once.
func (c *Client) tryOpen(ctx context.Context, port uint32, first proto.Message, reply answer) (Conn, error) {
	conn, err := c.dial(ctx, port)
	if err != nil {
		return nil, explained(ctx, err)
	}
	if err := greet(ctx, conn, first, reply); err != nil {
		return nil, errors.Join(explained(ctx, err), conn.Close())
	}
	return conn, nil
}

// explained adds the reason why ctx has ended to an error, if it has.
func explained(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// RefusedError is the agent's reason not to open a connection.
type RefusedError string

// Error implements error.
func (r RefusedError) Error() string { return "agent: " + string(r) }

// greet sends the first frame and reads the answer, bounded by ctx.
func greet(ctx context.Context, conn Conn, open proto.Message, reply answer) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := api.WriteFrame(conn, open); err != nil {
		return err
	}
	if err := api.ReadFrame(conn, reply); err != nil {
		return err
	}
	if reply.GetError() != "" {
		return RefusedError(reply.GetError())
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}
