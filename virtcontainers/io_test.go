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
	stdout, stderr []byte
	ended          int
	changed        chan struct{}
	stdinClosed    bool
	stdinHeld      bool
	closed         int
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
	i.conns = conns
	if i.connectErr != nil {
		return i.connectErr
	}
	i.copying.Go(func() { i.copy(conns.Stdout, &i.stdout) })
	i.copying.Go(func() { i.copy(conns.Stderr, &i.stderr) })
	return nil
}

func (i *testIO) copy(conn guest.Conn, to *[]byte) {
	defer i.note(func() { i.ended++ })
	if conn == nil {
		return
	}
	if i.hold != nil {
		<-i.hold
	}
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		i.note(func() { *to = append(*to, buf[:n]...) })
		if err != nil {
			return
		}
	}
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
		enough := i.ended == 2 || uint64(len(i.stdout)) >= stdout && uint64(len(i.stderr)) >= stderr
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
	if i.conns.Stdin != nil {
		_ = i.conns.Stdin.CloseWrite()
	}
}

func (i *testIO) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed++
	for _, conn := range []guest.Conn{i.conns.Stdin, i.conns.Stdout, i.conns.Stderr} {
		if conn != nil {
			_ = conn.Close()
		}
	}
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
	_, err := io.WriteString(conn, text)
	return err
}

func (i *testIO) isClosed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed > 0
}
