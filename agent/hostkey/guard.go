package hostkey

import (
	"errors"
	"net"
	"slices"
	"sync"

	"github.com/containerd/log"
)

// maxUnproven bounds the connections to one port that have not sent their key. One
// more ends the oldest: the host's connections send theirs at once.
const maxUnproven = 128

// Guard returns a listener that accepts those connections of l that begin with the
// host's key, and closes the others. It owns l.
func (k *Keeper) Guard(l net.Listener) net.Listener { return k.guard(l, k.plain) }

// GuardCalls is Guard for the port whose connections keep the key in use.
func (k *Keeper) GuardCalls(l net.Listener) net.Listener { return k.guard(l, k.keep) }

func (k *Keeper) guard(l net.Listener, use func(net.Conn) net.Conn) net.Listener {
	g := &guarded{
		Listener: l, keeper: k, use: use,
		proven: make(chan net.Conn), ended: make(chan struct{}),
	}
	go g.run()
	return g
}

// guarded reads the keys of several connections at a time, so that one that sends
// none keeps no other waiting.
type guarded struct {
	net.Listener
	keeper *Keeper
	use    func(net.Conn) net.Conn

	proven chan net.Conn
	ended  chan struct{} // closed with the listener, after err was set
	err    error

	mu       sync.Mutex
	unproven []net.Conn // their keys are awaited; the oldest first
}

// run accepts connections until the listener ends.
func (g *guarded) run() {
	defer close(g.ended)
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			g.err = err
			return
		}
		g.add(conn)
		go g.prove(conn)
	}
}

// add records a connection whose key is awaited.
func (g *guarded) add(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.unproven) == maxUnproven {
		_ = g.unproven[0].Close()
		g.unproven = slices.Delete(g.unproven, 0, 1)
	}
	g.unproven = append(g.unproven, conn)
}

// remove undoes add. It returns false if another connection has ended this one.
func (g *guarded) remove(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.unproven, conn)
	if i >= 0 {
		g.unproven = slices.Delete(g.unproven, i, i+1)
	}
	return i >= 0
}

var errTooMany = errors.New("it sent no key, and too many others wait")

// prove passes a connection on, or closes it.
func (g *guarded) prove(conn net.Conn) {
	admitted, err := g.keeper.admit(conn, g.use)
	if !g.remove(conn) && err == nil {
		_ = admitted.Close()
		err = errTooMany
	}
	if err != nil {
		g.refuse(conn, err)
		return
	}
	select {
	case g.proven <- admitted:
	case <-g.ended:
		_ = admitted.Close()
	}
}

// refuse closes a connection. The first one of all ports is worth a warning; the
// process that made it can make many.
func (g *guarded) refuse(conn net.Conn, err error) {
	entry := log.L.WithError(err).WithField("from", conn.RemoteAddr()).WithField("port", g.Addr())
	entry.Debug("a connection was refused")
	g.keeper.warned.Do(func() { entry.Warn("a connection was refused; others will not be logged") })
	_ = conn.Close()
}

// Accept implements net.Listener.
func (g *guarded) Accept() (net.Conn, error) {
	select {
	case <-g.ended:
		return nil, g.err
	default:
	}
	select {
	case conn := <-g.proven:
		return conn, nil
	case <-g.ended:
		return nil, g.err
	}
}
