package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/katabox/katabox/agent/api"
)

// keyTimeout is how long an agent that took a connection may need for the key:
// more than the agent itself gives the machine's former owner to disappear.
const keyTimeout = time.Minute

// probeEvery is how many refusals of a key there are for each attempt to find out
// whether the agent answers calls without one. It may need probeTimeout for that.
const (
	probeEvery   = 20
	probeTimeout = time.Second
)

// strayCall is a message of ttrpc, longer than a key: its header (length, stream,
// type, flags; ttrpc's channel.go) and zeros. An agent that takes no keys answers
// that a call cannot have an even stream, and one that does closes the connection.
var strayCall = append([]byte{0, 0, 0, api.KeyBytes, 0, 0, 0, 2, 1, 0}, make([]byte, api.KeyBytes)...)

// keyed dials one machine.
type keyed struct {
	dial, dialReserved DialFunc
	key                api.Key

	// refusals counts those of the port that takes the key. It is used by the one
	// goroutine that offers it.
	refusals int
}

// WithKey returns a DialFunc for one machine whose connections are known to the
// agent as those of the machine's owner (agent/api, key.go). dialReserved dials from
// a reserved port of the host. A connection to api.PortRPC offers a new key first;
// no other may be dialled at that time. It fails if the agent has another one.
func WithKey(dial, dialReserved DialFunc) DialFunc {
	k := &keyed{dial: dial, dialReserved: dialReserved}
	_, _ = rand.Read(k.key[:]) // never fails (crypto/rand)
	return func(ctx context.Context, port uint32) (Conn, error) {
		if port == api.PortRPC {
			if err := k.offer(ctx); err != nil {
				return nil, err
			}
		}
		return k.connect(ctx, port)
	}
}

// connect opens a connection that begins with the key.
func (k *keyed) connect(ctx context.Context, port uint32) (Conn, error) {
	conn, err := k.dial(ctx, port)
	if err != nil {
		return nil, err
	}
	err = inTime(ctx, conn, func() error {
		_, err := conn.Write(k.key[:])
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("show the agent the machine's key: %w", err), conn.Close())
	}
	return conn, nil
}

// offer makes the key the agent's, if that has none. It fails with
// syscall.ECONNREFUSED or ECONNRESET while the agent does not listen.
func (k *keyed) offer(ctx context.Context) error {
	conn, err := k.dialReserved(ctx, api.PortKey)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return k.refused(ctx, err)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	var answer [1]byte
	err = inTime(ctx, conn, func() error {
		if _, err := conn.Write(k.key[:]); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, answer[:])
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("give the agent the machine's key: %w", err)
	case answer[0] == api.KeyRefused:
		return errors.New("give the agent the machine's key: it has one from another process of this host, which has connected to the machine by its vsock before")
	case answer[0] != api.KeyTaken:
		return fmt.Errorf("give the agent the machine's key: it answered %d", answer[0])
	}
	return nil
}

// refused returns the error of an offer that was refused: the agent does not listen
// yet, more connections wait than its port takes, or it has no port for keys.
func (k *keyed) refused(ctx context.Context, refusal error) error {
	if k.refusals++; k.refusals%probeEvery != 0 || !k.answersKeyless(ctx) {
		return refusal
	}
	return errors.New("the guest's agent takes no key: the guest image is of an older release than the shim")
}

// answersKeyless reports whether the agent answers a call that no key precedes. That
// its port is open says nothing: an agent that has keys accepts all connections.
func (k *keyed) answersKeyless(ctx context.Context) bool {
	conn, err := k.dial(ctx, api.PortRPC)
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return inTime(ctx, conn, func() error {
		if _, err := conn.Write(strayCall); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}) == nil
}

// inTime has do use a connection until ctx or keyTimeout ends. After an error the
// connection is to be closed.
func inTime(ctx context.Context, conn Conn, do func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, keyTimeout, fmt.Errorf("it did not answer within %v: %w", keyTimeout, context.DeadlineExceeded))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !stop() {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}
