package debug

import (
	"fmt"
	"net"
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

// takeInput passes frames on until the connection ends.
func (p *process) takeInput(conn net.Conn) {
	for {
		var in api.DebugInput
		if err := api.ReadFrame(conn, &in); err != nil {
			p.kill()
			return
		}
		if p.terminal {
			resize(p.in, in.GetRows(), in.GetColumns())
		}
		if len(in.GetData()) > 0 {
			_, _ = p.in.Write(in.GetData()) // a process that reads no more is no error
		}
		if in.GetEnd() && !p.terminal {
			_ = p.in.Close()
		}
	}
}

// sendOutput sends frames until the process and its children have closed their
// output. A connection that takes no more kills them.
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
