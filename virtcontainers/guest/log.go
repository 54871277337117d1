package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
)

// ForwardLog writes the agent's log into the host's, with source=agent, until
// the guest ends or ctx does.
func (c *Client) ForwardLog(ctx context.Context) error {
	conn, err := c.dial(ctx, api.PortLog)
	if err != nil {
		return fmt.Errorf("open agent log: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	return errors.Join(forwardLines(ctx, conn), conn.Close())
}

// forwardLines logs each line of r. A line longer than the bound is cut.
func forwardLines(ctx context.Context, r io.Reader) error {
	in := bufio.NewReaderSize(r, api.MaxLogLine)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			logLine(ctx, bytes.TrimRight(line, "\n"))
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			err = skipLine(in)
		}
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read agent log: %w", err)
		}
	}
}

func skipLine(in *bufio.Reader) error {
	for {
		_, err := in.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// logLine writes one line at the level it names. What cannot be parsed is
// logged as text: the guest can only write into its own message.
func logLine(ctx context.Context, line []byte) {
	entry := log.G(ctx).WithField("source", "agent")
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		entry.Info(string(line))
		return
	}
	message, _ := fields["msg"].(string)
	level, _ := fields["level"].(string)
	guestTime, _ := fields["time"].(string)
	for _, taken := range []string{"msg", "level", "time", "source"} {
		delete(fields, taken)
	}
	entry = entry.WithFields(fields).WithField("guest_time", guestTime)
	switch level {
	case "panic", "fatal", "error":
		entry.Error(message)
	case "warning":
		entry.Warn(message)
	case "debug", "trace":
		entry.Debug(message)
	default:
		entry.Info(message)
	}
}
