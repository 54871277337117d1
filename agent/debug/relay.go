package debug

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/katabox/katabox/agent/api"
)

// lastOutput bounds the wait for a terminal's last output: a child that was left
// behind may keep it open.
const lastOutput = 500 * time.Millisecond

// run carries input and output until the process has ended. The end of the
// connection kills it.
func (p *process) run(conn net.Conn) error {
	input, output := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(input)
		p.takeInput(conn)
	}()
	go func() { output <- p.sendOutput(conn) }()
	status := p.wait()
	if p.terminal {
		time.AfterFunc(lastOutput, func() { _ = p.out.Close() })
	}
	err := <-output
	p.end()
	if err == nil {
		err = api.WriteFrame(conn, &api.DebugOutput{Exited: true, Status: status})
	}
	_ = conn.Close()
	<-input
	_, _ = p.in.Close(), p.out.Close()
	if err != nil {
		return fmt.Errorf("debug: %w", err)
	}
	return nil
}

// probeInterval is how often the connection is tried while the process does not
// read its input.
const probeInterval = time.Second

// takeInput passes frames on until the connection ends, and with it the process
// and its output: a child that has left the process's group may hold that open.
func (p *process) takeInput(conn net.Conn) {
	defer func() {
		p.kill()
		_ = p.out.Close()
	}()
	for {
		var in api.DebugInput
		if err := api.ReadFrame(conn, &in); err != nil {
			return
		}
		if p.terminal {
			resize(p.in, &in)
		}
		if err := p.give(conn, in.GetData()); err != nil {
			return
		}
		if in.GetEnd() && !p.terminal {
			_ = p.in.Close()
		}
	}
}

// give writes to the process's input. While that blocks the connection is not
// read, so its end is noticed by sending frames without data. A process that has
// closed its input is not an error.
func (p *process) give(conn net.Conn, data []byte) error {
	for len(data) > 0 {
		if err := p.in.SetWriteDeadline(time.Now().Add(probeInterval)); err != nil {
			return nil //nolint:nilerr // it was closed by DebugInput.end
		}
		n, err := p.in.Write(data)
		if data = data[n:]; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil // nothing reads it any more
		}
		if len(data) == 0 {
			break
		}
		if err := api.WriteFrame(conn, &api.DebugOutput{}); err != nil {
			return fmt.Errorf("try the connection: %w", err)
		}
	}
	return nil
}

// sendOutput sends frames until the process and its children have closed their
// output. If the connection fails, they are killed.
func (p *process) sendOutput(conn net.Conn) error {
	buf := make([]byte, api.MaxDebugData)
	for {
		n, err := p.out.Read(buf)
		if n > 0 {
			if err := api.WriteFrame(conn, &api.DebugOutput{Data: buf[:n]}); err != nil {
				p.kill()
				return err
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the end; of a terminal, EIO
		}
	}
}
