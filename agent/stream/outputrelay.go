package stream

import (
	"syscall"
	"time"

	"github.com/katabox/katabox/agent/relay"
)

const (
	// muchOutput is the size in bytes of a read that shows that the process writes much:
	// its output is relayed from then on.
	muchOutput = 64 << 10
	// relayIdle is how long a relay, which occupies a thread, waits for the next bytes.
	relayIdle = 20 * time.Millisecond
)

// relayed copies by a relay until that ends, for whatever reason but a halt, which
// is its error.
func (o *output) relayed(r *run, block []byte) error {
	conn, ok := r.conn.(syscall.Conn)
	if !ok || o.terminal || r.bulk != nil && r.bulk.failed {
		return nil
	}
	rl, err := o.beginRelay(r)
	if rl == nil {
		return err
	}
	read, rest, err := r.relay(rl, o.file, conn, block)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.relay = nil
	_ = rl.Close()
	o.changed.Broadcast()
	o.read += read
	o.sent += read - uint64(len(rest))
	if len(rest) > 0 {
		o.rest = rest // a part of a block; next copies it
	}
	if o.halted(r) {
		return errHalted
	}
	return err
}

// relay runs a relay through the file that the host has offered, or else over the
// connection, by the block.
func (r *run) relay(rl *relay.Relay, from, to syscall.Conn, block []byte) (read uint64, rest []byte, err error) {
	if r.bulk != nil {
		return r.bulk.relay(rl, from, to)
	}
	return rl.Run(from, to, block)
}

// beginRelay returns a relay if one can start now: bytes that were read but not sent
// come first. Without a relay, copying continues as before.
func (o *output) beginRelay(r *run) (*relay.Relay, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.halted(r):
		return nil, errHalted
	case o.gone:
		return nil, errClosed
	case o.counting > 0 || len(o.rest) > 0 || len(o.ahead) > 0:
		return nil, nil
	}
	rl, err := relay.New()
	if err != nil {
		return nil, nil // It is only slower.
	}
	rl.Small, rl.Pause, rl.Idle = smallBlock, gatherTime, relayIdle
	o.relay = rl
	return rl, nil
}

// stopRelay lets a relay end. mu is held.
func (o *output) stopRelay() {
	if o.relay != nil {
		o.relay.Stop()
	}
}

// endRelay waits until no relay copies. None begins until mu, which is held, is
// released.
func (o *output) endRelay() {
	o.counting++
	defer func() { o.counting-- }()
	for o.relay != nil {
		o.stopRelay()
		o.changed.Wait()
	}
}

// close ends the stream: a relay holds its ends until it has ended.
func (o *output) close() {
	o.mu.Lock()
	o.gone = true
	o.stopRelay()
	file := o.file
	o.mu.Unlock()
	o.binding.close()
	if file != nil {
		_ = file.Close()
	}
}
