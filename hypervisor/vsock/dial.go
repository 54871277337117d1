package vsock

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	mdvsock "github.com/mdlayher/vsock"
)

// answerTimeout is how long a guest has to answer a request before it is
// repeated. A driver that is starting can lose one: it may receive packets
// before it can send.
const answerTimeout = 3 * time.Second

// maxDialing bounds the connections that wait for the guest's answer.
const maxDialing = 1024

// errNoAnswer and errRestarted end one attempt, not the whole dial.
var (
	errNoAnswer  = errors.New("guest did not answer")
	errRestarted = errors.New("guest's driver was reset")
)

// choosePort finds a host port that no connection to the same port of the guest
// uses, 0 if there is none. The caller holds mu.
type choosePort func(d *device, guest uint32) uint32

// dial opens a connection to the guest.
func (d *device) dial(ctx context.Context, choose choosePort, port uint32) (Conn, error) {
	for {
		c, err := d.dialOnce(ctx, choose, port)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errNoAnswer) && !errors.Is(err, errRestarted) {
			return nil, &net.OpError{
				Op: "dial", Net: network,
				Addr: &mdvsock.Addr{ContextID: guestCID, Port: port}, Err: err,
			}
		}
	}
}

func (d *device) dialOnce(ctx context.Context, choose choosePort, port uint32) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := d.newDialing(choose, port)
	if err != nil {
		return nil, err
	}
	// While the driver is not up the request waits in the outbox, and goes
	// out with the first receive buffer.
	d.outbox.add(c, pendRequest, 0)
	d.flush()
	if err := c.waitAnswer(ctx); err != nil {
		c.abort()
		d.flush()
		return nil, err
	}
	return c, nil
}

// waitAnswer waits until the guest has answered or its time is up.
func (c *conn) waitAnswer(ctx context.Context) error {
	tick := time.NewTicker(answerTimeout)
	defer tick.Stop()
	for {
		// The time starts at the first tick after the request was sent.
		asked := c.requested.Load()
		select {
		case <-c.answered:
			return c.dialError()
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if asked {
				return errNoAnswer
			}
		}
	}
}

// newDialing makes a connection from a free host port.
func (d *device) newDialing(choose choosePort, port uint32) (*conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dialing >= maxDialing {
		return nil, syscall.EAGAIN
	}
	a := addrPair{host: choose(d, port), guest: port}
	if a.host == 0 {
		return nil, syscall.EADDRINUSE
	}
	c, err := d.insert(a)
	if err == nil {
		d.dialing++
	}
	return c, err
}

// freePort is a choosePort of those that are not reserved: there are more than
// connections.
func (d *device) freePort(guest uint32) uint32 {
	const anyPort = ^uint32(0)
	for {
		d.nextPort++
		p := d.nextPort
		if p < ReservedPorts || p == anyPort {
			continue
		}
		if d.conns[addrPair{host: p, guest: guest}] == nil {
			return p
		}
	}
}

// freeReservedPort is a choosePort of the reserved ones. As the kernel does, it
// does not use port 0.
func (d *device) freeReservedPort(guest uint32) uint32 {
	for p := uint32(ReservedPorts - 1); p > 0; p-- {
		if d.conns[addrPair{host: p, guest: guest}] == nil {
			return p
		}
	}
	return 0
}

// endDialing releases a place among maxDialing.
func (d *device) endDialing() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dialing--
}
