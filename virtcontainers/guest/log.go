package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
)

// ForwardLog writes the agent's log into the host's, with source=agent, until
// the guest ends or ctx does. It goes on after Relink.
func (c *Client) ForwardLog(ctx context.Context) error {
	budget := newLogBudget()
	l := c.links.current()
	for {
		next, err := c.links.after(ctx, l, c.forwardLog(ctx, budget))
		if next == nil {
			return err
		}
		l = next
	}
}

// forwardLog forwards what comes over one connection.
func (c *Client) forwardLog(ctx context.Context, budget *logBudget) error {
	conn, err := c.dial(ctx, api.PortLog)
	if err != nil {
		return fmt.Errorf("open agent log: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return forwardLines(ctx, conn, budget)
}

// forwardLines logs each line of r. A line longer than the bound is cut.
func forwardLines(ctx context.Context, r io.Reader, budget *logBudget) error {
	in := bufio.NewReaderSize(r, api.MaxLogLine)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			ok, dropped := budget.take(len(line))
			if dropped > 0 {
				log.G(ctx).WithField("source", "agent").Warnf("%d lines of the guest's log were dropped", dropped)
			}
			if ok {
				logLine(ctx, bytes.TrimRight(line, "\n"))
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			err = skipLine(in)
		}
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil //nolint:nilerr // the sandbox ends, and its connections with it
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

// maxLogFields bounds the fields of one line that are passed on.
const maxLogFields = 16

// fieldName matches the names allowed for a guest's fields. The formatter does
// not quote names: one with a newline in it would forge a line of the host's
// log.
var fieldName = regexp.MustCompile(`^[A-Za-z0-9_]{1,32}$`)

// logLine writes one line at the level it names. A line that cannot be parsed
// is logged as text: the guest controls only its own message, which the
// formatter quotes.
func logLine(ctx context.Context, line []byte) {
	entry := log.G(ctx).WithField("source", "agent")
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		entry.Info(string(line))
		return
	}
	message, _ := fields["msg"].(string)
	level, _ := fields["level"].(string)
	entry = entry.WithFields(guestFields(fields))
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

// guestFields picks the fields that a guest may set: none of the host's own.
func guestFields(fields map[string]any) log.Fields {
	own := make(log.Fields, maxLogFields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch name {
		case "msg", "level", "source", "sandbox":
			continue
		case "time":
			own["guest_time"] = fmt.Sprint(fields[name])
			continue
		}
		if fieldName.MatchString(name) && len(own) < maxLogFields {
			own[name] = fmt.Sprint(fields[name])
		}
	}
	return own
}
