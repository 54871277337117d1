package hostkey

import (
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

const (
	// maxUnproven bounds the connections to one port that have not sent their key.
	// One more ends the oldest: the host's connections send theirs at once.
	maxUnproven = 128
	// readPause is the wait for the oldest of them to be read.
	readPause = time.Millisecond
)

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
		if err := conn.SetReadDeadline(time.Now().Add(keyTimeout)); err != nil {
			g.refuse(conn, err)
			continue
		}
		g.add(conn)
		go g.prove(conn)
	}
}

// add records a connection whose key is awaited.
func (g *guarded) add(conn net.Conn) {
	for !g.tryAdd(conn) {
		time.Sleep(readPause)
	}
}

// tryAdd fails if there is no room, and the oldest connection has sent what was not
// read yet: it may be the host's, in a burst that is accepted faster than it is read.
func (g *guarded) tryAdd(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.unproven) == maxUnproven {
		if isReadable(g.unproven[0]) {
			return false
		}
		// Not Close: the key may have been read a moment ago.
		_ = g.unproven[0].SetReadDeadline(time.Unix(1, 0))
		g.unproven = slices.Delete(g.unproven, 0, 1)
	}
	g.unproven = append(g.unproven, conn)
	return true
}

// remove undoes add. Nothing sets the connection's deadline any more.
func (g *guarded) remove(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.unproven, conn); i >= 0 {
		g.unproven = slices.Delete(g.unproven, i, i+1)
	}
}

// isReadable reports whether reading from a connection would not wait.
func isReadable(conn net.Conn) (ready bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	// Control, because Read waits for the reader that prove is.
	err = raw.Control(func(fd uintptr) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		ready = n > 0
	})
	return ready && err == nil
}

// prove passes a connection on, or closes it.
func (g *guarded) prove(conn net.Conn) {
	admitted, err := g.keeper.admit(conn, g.use)
	g.remove(conn)
	if err != nil {
		g.refuse(conn, err)
		return
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		_ = admitted.Close()
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
