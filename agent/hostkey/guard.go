package hostkey

import (
	"errors"
	"net"

	"github.com/containerd/log"
)

// maxUnproven bounds the connections to one port that have not sent their key. The
// host's do so at once, whatever others try.
const maxUnproven = 128

// Guard returns a listener that accepts those connections of l that begin with the
// host's key, and closes the others. It owns l.
func (k *Keeper) Guard(l net.Listener) net.Listener { return k.guard(l, k.plain) }

// GuardCalls is Guard for the port whose connections keep the key in use.
func (k *Keeper) GuardCalls(l net.Listener) net.Listener { return k.guard(l, k.keep) }

func (k *Keeper) guard(l net.Listener, use func(net.Conn) net.Conn) net.Listener {
	g := &guarded{
		Listener: l, keeper: k, use: use,
		proven: make(chan net.Conn), unproven: make(chan struct{}, maxUnproven), ended: make(chan struct{}),
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

	proven   chan net.Conn
	unproven chan struct{} // has an element for each connection whose key is awaited
	ended    chan struct{} // closed with the listener, after err was set
	err      error
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
		select {
		case g.unproven <- struct{}{}:
			go g.prove(conn)
		default:
			g.refuse(conn, errTooMany)
		}
	}
}

var errTooMany = errors.New("too many others have sent no key")

// prove passes a connection on, or closes it.
func (g *guarded) prove(conn net.Conn) {
	admitted, err := g.keeper.admit(conn, g.use)
	<-g.unproven
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
