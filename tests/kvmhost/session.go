package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// errDied means that the machine itself died, so the outcome of what ran in it
// is unknown.
var errDied = errors.New("the emulated host died")

// silence is how long a machine may send no frame before it counts as dead. It
// sends one every wire.BeatPeriod.
const silence = 3 * time.Minute

// next waits for a frame other than a heartbeat. After ctx has ended the port
// cannot be used any more.
func (m *machine) next(ctx context.Context) (wire.Kind, []byte, error) {
	for {
		kind, data, err := m.read(ctx)
		if err != nil || kind != wire.KindBeat {
			return kind, data, err
		}
	}
}

func (m *machine) read(ctx context.Context) (wire.Kind, []byte, error) {
	if err := m.port.SetReadDeadline(time.Now().Add(m.silence)); err != nil {
		return 0, nil, fmt.Errorf("%w: set deadline: %w", errDied, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = m.port.SetReadDeadline(time.Now()) })
	defer stop()
	kind, data, err := wire.Read(m.frames)
	switch {
	case err == nil:
		return kind, data, nil
	case ctx.Err() != nil:
		return 0, nil, context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, nil, fmt.Errorf("%w: nothing was heard of it for %v", errDied, m.silence)
	}
	return 0, nil, fmt.Errorf("%w: %w", errDied, err)
}

// run runs a command in the machine and returns its exit code. Its output is
// copied to out and errs as it arrives.
func (m *machine) run(ctx context.Context, c wire.Command, out, errs io.Writer) (int, error) {
	if err := m.port.SetWriteDeadline(time.Now().Add(m.silence)); err != nil {
		return 0, fmt.Errorf("%w: set deadline: %w", errDied, err)
	}
	if err := wire.WriteJSON(m.port, wire.KindRun, c); err != nil {
		return 0, fmt.Errorf("%w: %w", errDied, err)
	}
	for {
		kind, data, err := m.next(ctx)
		if err != nil {
			return 0, fmt.Errorf("run %s: %w", c.Args[0], err)
		}
		switch kind {
		case wire.KindOutput:
			_, err = out.Write(data)
		case wire.KindErrors:
			_, err = errs.Write(data)
		case wire.KindExit:
			return exitCode(data)
		default:
			err = fmt.Errorf("frame %q is none of a command's", kind)
		}
		if err != nil {
			return 0, fmt.Errorf("run %s: %w", c.Args[0], err)
		}
	}
}

func exitCode(data []byte) (int, error) {
	var exit wire.Exit
	if err := json.Unmarshal(data, &exit); err != nil {
		return 0, fmt.Errorf("read exit: %w", err)
	}
	if exit.Problem != "" {
		fmt.Fprintln(os.Stderr, "kvmhost: in the machine:", exit.Problem)
	}
	return exit.Code, nil
}

// environ returns the part of this program's environment that is valid in the
// machine, and more.
func environ(more ...string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains([]string{"HOME", "TERM", "LANG", "USER"}, name) || strings.HasPrefix(name, "KATABOX_") {
			env = append(env, e)
		}
	}
	return append(env, more...)
}
