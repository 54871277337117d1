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
// whether the agent serves calls without one. If it does so for keylessTime, it will
// never take a key: an agent opens its ports within a moment.
const (
	probeEvery  = 20
	keylessTime = 3 * time.Second
)

// keyed dials one machine.
type keyed struct {
	dial, dialReserved DialFunc
	key                api.Key

	// Used by the one goroutine that offers the key.
	refusals int       // of the port that takes it
	keyless  time.Time // since when the agent has served calls all the same
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
// yet, or it is one that has no port for keys.
func (k *keyed) refused(ctx context.Context, refusal error) error {
	if k.refusals++; k.refusals%probeEvery != 0 {
		return refusal
	}
	conn, err := k.dial(ctx, api.PortRPC)
	if err != nil {
		return refusal
	}
	_ = conn.Close()
	if k.keyless.IsZero() {
		k.keyless = time.Now()
	}
	if time.Since(k.keyless) < keylessTime {
		return refusal
	}
	return errors.New("the guest's agent takes no key: the guest image is of an older release than the shim")
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
