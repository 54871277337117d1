package virtcontainers_test

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// testIO is the engine's side of stdio, in memory.
type testIO struct {
	streams virtcontainers.Streams
	// hold, if not nil, holds output back until it is closed.
	hold chan struct{}
	// connectErr is Connect's answer.
	connectErr error

	mu             sync.Mutex // guards what follows
	conns          virtcontainers.Conns
	before         virtcontainers.Conns // how much passed in another sandbox
	stdout, stderr []byte
	ended          int
	changed        chan struct{}
	stdinClosed    bool
	stdinHeld      bool
	written        uint64 // bytes of input since the process was created
	parked         bool
	rebound        int // how often
	closed         int
	endsAwaited    bool // after Close
	awaited        int  // how often, before Close
	copying        sync.WaitGroup
}

var _ virtcontainers.IO = (*testIO)(nil)

func newIO(s virtcontainers.Streams) *testIO {
	return &testIO{streams: s, changed: make(chan struct{})}
}

func (i *testIO) Streams() virtcontainers.Streams { return i.streams }

func (i *testIO) Connect(conns virtcontainers.Conns) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conns, i.written, i.before = conns, conns.StdinSent, conns
	if i.connectErr != nil {
		return i.connectErr
	}
	i.copying.Go(func() { i.copy(conns.Stdout, stdoutOf, &i.stdout) })
	i.copying.Go(func() { i.copy(conns.Stderr, stderrOf, &i.stderr) })
	return nil
}

func stdoutOf(c virtcontainers.Conns) guest.Conn { return c.Stdout }
func stderrOf(c virtcontainers.Conns) guest.Conn { return c.Stderr }

func (i *testIO) copy(conn guest.Conn, of func(virtcontainers.Conns) guest.Conn, to *[]byte) {
	defer i.note(func() { i.ended++ })
	if conn == nil {
		return
	}
	if i.hold != nil {
		<-i.hold
	}
	buf := make([]byte, 4096)
	for rebound := 0; conn != nil; {
		n, err := conn.Read(buf)
		i.note(func() { *to = append(*to, buf[:n]...) })
		if err != nil {
			conn, rebound = i.following(rebound, of)
		}
	}
}

// following returns the connection that the next Rebind has brought, nil if there
// is none. It waits while the IO is parked.
func (i *testIO) following(rebound int, of func(virtcontainers.Conns) guest.Conn) (guest.Conn, int) {
	for {
		i.mu.Lock()
		parked, changed, conn, now := i.parked, i.changed, of(i.conns), i.rebound
		i.mu.Unlock()
		switch {
		case parked:
			<-changed
		case now == rebound:
			return nil, now
		default:
			return conn, now
		}
	}
}

func (i *testIO) Park(context.Context) (uint64, bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.parked = true
	return i.written, i.conns.Stdin != nil && !i.stdinClosed, nil
}

func (i *testIO) Rebind(conns virtcontainers.Conns) error {
	i.note(func() {
		i.parked, i.conns = false, conns
		i.rebound++
		if i.stdinClosed && conns.Stdin != nil {
			_ = conns.Stdin.CloseWrite()
		}
	})
	return nil
}

func (i *testIO) note(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
	close(i.changed)
	i.changed = make(chan struct{})
}

func (i *testIO) Drain(ctx context.Context, stdout, stderr uint64) {
	for {
		i.mu.Lock()
		enough := i.ended == 2 || i.before.StdoutSent+uint64(len(i.stdout)) >= stdout && i.before.StderrSent+uint64(len(i.stderr)) >= stderr
		changed := i.changed
		i.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (i *testIO) Await(ctx context.Context, stdout, stderr uint64) {
	i.note(func() {
		if i.closed == 0 {
			i.awaited++
		}
	})
	i.Drain(ctx, stdout, stderr)
}

func (i *testIO) HoldStdin() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stdinHeld = true
	return nil
}

func (i *testIO) isHeld() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stdinHeld
}

func (i *testIO) CloseStdin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stdinClosed = true
	if i.conns.Stdin != nil && !i.parked {
		_ = i.conns.Stdin.CloseWrite()
	}
}

func (i *testIO) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed++
	i.parked = false
	close(i.changed)
	i.changed = make(chan struct{})
	for _, conn := range []guest.Conn{i.conns.Stdin, i.conns.Stdout, i.conns.Stderr} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

func (i *testIO) AwaitEnds(context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.endsAwaited = i.closed > 0
}

// output returns what was passed on so far.
func (i *testIO) output() (stdout, stderr string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return string(i.stdout), string(i.stderr)
}

// write writes to the guest's stdin.
func (i *testIO) write(text string) error {
	i.mu.Lock()
	conn := i.conns.Stdin
	i.mu.Unlock()
	if conn == nil {
		return errors.New("no stdin")
	}
	n, err := io.WriteString(conn, text)
	i.note(func() { i.written += uint64(n) })
	return err
}

func (i *testIO) isClosed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed > 0
}
