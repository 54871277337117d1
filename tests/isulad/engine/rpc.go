package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
)

// The frames of ttrpc (its PROTOCOL.md): length, stream, type, flags.
const (
	frameHeader   = 10
	frameRequest  = 1
	frameResponse = 2
	maxFrame      = 4 << 20
)

// taskService is the only service that iSulad knows.
const taskService = "containerd.task.v2.Task"

// StatusError is an answer that is not OK. Code is gRPC's.
type StatusError struct {
	Code    int32
	Message string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Message) }

// CodeNotFound is a gRPC code that tests check for.
const CodeNotFound = 5

// Code returns the status code of the shim's answer, or -1 if err is not an
// answer from the shim.
func Code(err error) int32 {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code
	}
	return -1
}

// conn is one container's connection. Calls may run concurrently; the frames
// have flags 0 and no metadata, as those of iSulad's client library.
type conn struct {
	net  net.Conn
	done chan struct{} // closed when the reader has ended

	writing sync.Mutex // guards writes to net

	mu      sync.Mutex // guards what follows
	last    uint32
	pending map[uint32]chan *ttrpc.Response
	broken  error
}

// dial connects to an address as the shim printed it. iSulad takes an address
// that is not a URL for the name of an abstract socket; dial refuses it.
func dial(address string) (*conn, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return nil, fmt.Errorf("connect to %q: it would be an abstract socket of that name", address)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to shim: %w", err)
	}
	conn := &conn{net: c, done: make(chan struct{}), pending: make(map[uint32]chan *ttrpc.Response)}
	go conn.read()
	return conn, nil
}

func (c *conn) close() {
	_ = c.net.Close()
	<-c.done
}

// call waits for the answer as long as ctx allows; iSulad waits without a
// timeout.
func (c *conn) call(ctx context.Context, method string, req, resp proto.Message) error {
	payload, err := proto.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	answer, err := c.send(&ttrpc.Request{Service: taskService, Method: method, Payload: payload})
	if err != nil {
		return fmt.Errorf("send %s: %w", method, err)
	}
	select {
	case r, ok := <-answer:
		if !ok {
			return fmt.Errorf("no answer to %s: %w", method, c.failure())
		}
		if s := r.GetStatus(); s.GetCode() != 0 {
			return &StatusError{Code: s.GetCode(), Message: s.GetMessage()}
		}
		return proto.Unmarshal(r.GetPayload(), resp)
	case <-ctx.Done():
		return fmt.Errorf("wait for the answer to %s: %w", method, ctx.Err())
	}
}

// expect registers a new stream. A client's streams have odd numbers.
func (c *conn) expect() (uint32, <-chan *ttrpc.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return 0, nil, c.broken
	}
	id := c.last + 1
	c.last += 2
	answer := make(chan *ttrpc.Response, 1)
	c.pending[id] = answer
	return id, answer, nil
}

// send writes requests in the order of their streams' numbers: a server refuses
// a number lower than the last.
func (c *conn) send(req *ttrpc.Request) (<-chan *ttrpc.Response, error) {
	data, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	id, answer, err := c.expect()
	if err != nil {
		return nil, err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	frame = binary.BigEndian.AppendUint32(frame, id)
	frame = append(frame, frameRequest, 0)
	_, err = c.net.Write(append(frame, data...))
	return answer, err
}

func (c *conn) read() {
	defer close(c.done)
	for {
		if err := c.readOne(); err != nil {
			c.fail(fmt.Errorf("connection to shim: %w", err))
			return
		}
	}
}

func (c *conn) readOne() error {
	var header [frameHeader]byte
	if _, err := io.ReadFull(c.net, header[:]); err != nil {
		return err
	}
	length, id := binary.BigEndian.Uint32(header[:]), binary.BigEndian.Uint32(header[4:])
	if length > maxFrame || header[8] != frameResponse {
		return fmt.Errorf("frame of type %d with %d bytes", header[8], length)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(c.net, data); err != nil {
		return err
	}
	var resp ttrpc.Response
	if err := proto.Unmarshal(data, &resp); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.pending[id]
	if !ok {
		return fmt.Errorf("answer to stream %d, which is not open", id)
	}
	delete(c.pending, id)
	answer <- &resp
	return nil
}

// fail ends all pending calls.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
	for id, answer := range c.pending {
		delete(c.pending, id)
		close(answer)
	}
}

func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}
