package hostkey

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/containerd/log"
	"github.com/mdlayher/vsock"

	"github.com/katabox/katabox/agent/accept"
	"github.com/katabox/katabox/agent/api"
)

const (
	// maxOffers bounds the connections that offer a key at a time.
	maxOffers = 16
	// keyTimeout is how long a connection may take to send its key: the host does
	// so at once.
	keyTimeout = 10 * time.Second
	// freeTimeout is how long an offer waits for the end of the key in use. The
	// connections of a machine's old owner are dead when it is restored, but the
	// agent may not have read that yet.
	freeTimeout = 10 * time.Second
)

// Keeper keeps the host's key. The zero value has none and is ready for use. Its
// methods may be called from several goroutines.
type Keeper struct {
	mu  sync.Mutex
	key *api.Key
	// The key ends with the last open connection for calls, unless it was offered
	// again and the connection that follows has not come yet: the machine's owner
	// has taken the vsock device away and given it back, and the agent may read the
	// end of the connections before that only now.
	calls   int
	offered bool
	free    chan struct{} // closed when the key ends; nil without a key

	warned sync.Once
}

// Serve takes keys on api.PortKey until ctx is done or l fails.
func (k *Keeper) Serve(ctx context.Context, l net.Listener) error {
	return accept.Serve(ctx, l, maxOffers, func(ctx context.Context, conn net.Conn, _ func()) error {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		return k.answer(ctx, conn)
	})
}

// answer takes or refuses the key of one connection.
func (k *Keeper) answer(ctx context.Context, conn net.Conn) error {
	if !isReserved(conn.RemoteAddr()) {
		return fmt.Errorf("key from %v: want a port below %d", conn.RemoteAddr(), api.ReservedPorts)
	}
	if err := conn.SetReadDeadline(time.Now().Add(keyTimeout)); err != nil {
		return fmt.Errorf("read the host's key: %w", err)
	}
	key, err := readKey(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	answer := byte(api.KeyTaken)
	if !k.take(ctx, key) {
		answer = api.KeyRefused
		log.G(ctx).Errorf("a key from %v was refused: the agent has another one", conn.RemoteAddr())
	}
	if err := conn.SetDeadline(time.Now().Add(keyTimeout)); err != nil {
		return fmt.Errorf("answer a key: %w", err)
	}
	if _, err := conn.Write([]byte{answer}); err != nil {
		return fmt.Errorf("answer a key: %w", err)
	}
	return nil
}

// take makes key the host's, as soon as there is no other one within ctx. It
// reports whether it is.
func (k *Keeper) take(ctx context.Context, key api.Key) bool {
	for {
		taken, free := k.tryTake(key)
		if taken {
			return true
		}
		select {
		case <-free:
		case <-ctx.Done():
			return false
		}
	}
}

func (k *Keeper) tryTake(key api.Key) (taken bool, free <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.key == nil {
		k.key, k.free = &key, make(chan struct{})
	}
	taken = k.is(key)
	k.offered = k.offered || taken
	return taken, k.free
}

// is reports whether key is the host's. The caller holds mu.
func (k *Keeper) is(key api.Key) bool {
	return k.key != nil && subtle.ConstantTimeCompare(k.key[:], key[:]) == 1
}

var errWrongKey = errors.New("it did not begin with the host's key")

// admit checks the beginning of a connection, and returns what use makes of it.
func (k *Keeper) admit(conn net.Conn, use func(net.Conn) net.Conn) (net.Conn, error) {
	key, err := readKey(conn)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.is(key) {
		return nil, errWrongKey
	}
	return use(conn), nil
}

// plain is the use of a connection that does not keep the key. The caller holds mu.
func (k *Keeper) plain(conn net.Conn) net.Conn { return conn }

// keep is the use of a connection that keeps the key. The caller holds mu.
func (k *Keeper) keep(conn net.Conn) net.Conn {
	k.calls++
	k.offered = false
	return &callsConn{Conn: conn, release: sync.OnceFunc(k.release)}
}

// release ends the use of the key by one connection.
func (k *Keeper) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.calls--; k.calls == 0 && !k.offered {
		k.key = nil
		close(k.free)
		k.free = nil
	}
}

// callsConn is a connection that keeps the key in use until reading has failed, or
// it is closed. ttrpc reads all the time, but may keep one open whose end is an
// error that it does not know.
type callsConn struct {
	net.Conn
	release func()
}

// Read implements net.Conn.
func (c *callsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.release()
	}
	return n, err
}

// Close implements net.Conn.
func (c *callsConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// readKey reads what a connection begins with.
func readKey(conn net.Conn) (key api.Key, err error) {
	if _, err := io.ReadFull(conn, key[:]); err != nil {
		return key, fmt.Errorf("read the host's key: %w", err)
	}
	return key, nil
}

func isReserved(addr net.Addr) bool {
	a, ok := addr.(*vsock.Addr)
	return ok && a.Port < api.ReservedPorts
}
