package vhostuser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// server is one front end's connection.
type server struct {
	conn     *net.UnixConn
	dev      Device
	rings    []*vring
	mem      *memory
	offered  uint64
	features uint64
	// protocols are the protocol features that are offered.
	protocols uint64

	// keeper is the device, if its state can be saved; otherwise nil.
	keeper StateKeeper
	// moving is the last transfer of its state, until its result was asked for.
	moving *transfer
	ended  <-chan struct{} // closed when Serve's context has ended
}

// Serve serves a device to the front end at the other side of conn, and finally
// closes conn. It blocks until the front end closes (nil), misbehaves or ctx
// ends (an error); then all queues are stopped, all guest memory is unmapped
// and no goroutine is left. A device is served by one Serve at a time.
func Serve(ctx context.Context, conn *net.UnixConn, dev Device) error {
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close()
		for _, q := range dev.Queues() {
			q.call.unblock()
		}
	})
	s := &server{conn: conn, dev: dev, offered: coreFeatures | dev.Features(), protocols: protocolFeatures, ended: ctx.Done()}
	if keeper, ok := dev.(StateKeeper); ok {
		s.keeper = keeper
		s.offered |= featLogAll
		s.protocols |= keeperFeatures
	}
	for _, q := range dev.Queues() {
		s.rings = append(s.rings, &vring{queue: q, dev: dev, raw: -1})
	}
	err := s.loop(ctx)
	s.endTransfer()
	for _, v := range s.rings {
		v.close()
	}
	err = errors.Join(err, s.mem.close())
	if stop() {
		_ = conn.Close()
		return err
	}
	return errors.Join(ctx.Err(), err)
}

func (s *server) loop(ctx context.Context) error {
	for {
		m, err := readMessage(s.conn)
		if ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			if m != nil {
				m.closeFDs()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from vhost-user front end: %w", err)
		}
		log.G(ctx).WithField("request", m.req.String()).Trace("vhost-user request")
		err = s.serve(m)
		m.closeFDs()
		if err != nil {
			return fmt.Errorf("serve %v of vhost-user front end: %w", m.req, err)
		}
	}
}

// serve handles one request and replies to it if a reply is due: its own, or
// the acknowledgement of REPLY_ACK.
func (s *server) serve(m *message) error {
	handle, ok := handlers[m.req]
	if !ok {
		handle = func(*server, *message) ([]byte, error) {
			return nil, fmt.Errorf("not offered: %w", errMalformed)
		}
	}
	reply, err := handle(s, m)
	if reply == nil && m.flags&flagNeedReply != 0 {
		status := uint64(0)
		if err != nil {
			status = 1
		}
		reply = encodeU64(status)
	}
	if reply == nil {
		return err
	}
	return errors.Join(err, writeReply(s.conn, m.req, reply))
}

// ring finds a queue by its index.
func (s *server) ring(index uint32) (*vring, error) {
	if index >= uint32(len(s.rings)) {
		return nil, fmt.Errorf("queue %d of %d: %w", index, len(s.rings), errMalformed)
	}
	return s.rings[index], nil
}
