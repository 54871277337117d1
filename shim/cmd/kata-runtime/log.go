package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/shim/monitor"
	"github.com/katabox/katabox/virtcontainers/printable"
)

const logDescription = "ID is the pod's id, or a prefix of it. A line is the shim's, or has a source: agent is the guest's agent; console is the guest's\n" +
	"console, which is logged only with enable_debug (--console prints its end in any case). The shim keeps the newest 64 KiB of its\n" +
	"own lines, and 64 KiB of all others. The engine's log has all lines, also those of pods that have ended."

func logCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "log", Usage: "print the log of a running pod's shim and guest", ArgsUsage: "ID", Description: logDescription,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "follow the log until the pod ends"},
			jsonFlag(),
			&cli.BoolFlag{Name: "console", Usage: "print the end of the guest's console instead, 16 KiB at most"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() != 1 {
				return fmt.Errorf("want one pod's id: see %s --help", c.FullName())
			}
			if c.Bool("console") && (c.Bool("follow") || c.Bool("json")) {
				return errors.New("--console writes text, once: leave out --follow and --json")
			}
			pod, err := monitor.Find(h.records, c.Args().First())
			if err != nil {
				return err
			}
			if c.Bool("console") {
				text, err := pod.Ask(ctx, management.ConsolePath)
				if err == nil {
					_, err = c.Root().Writer.Write(text)
				}
				return err
			}
			write := writeLogLine
			if c.Bool("json") {
				write = writeLogJSON
			}
			return h.log(ctx, pod, c.Bool("follow"), func(l monitor.LogLine) error { return write(c.Root().Writer, l) })
		},
	}
}

const (
	// endWait bounds the wait for the end of a pod whose shim no longer answers,
	// checked every endPoll: the socket is removed before the rest.
	endWait = 15 * time.Second
	endPoll = 200 * time.Millisecond
)

// log writes the pod's lines, once or until it ends, or a signal comes.
func (h host) log(ctx context.Context, pod monitor.Pod, follow bool, write func(monitor.LogLine) error) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	wait := 0
	for last := uint64(0); ; {
		lines, err := pod.Log(ctx, last, wait)
		if err != nil {
			if wait > 0 && h.ends(ctx, pod) {
				return nil
			}
			return err
		}
		for _, l := range lines {
			if err := write(l); err != nil {
				return err
			}
			last = l.Number
		}
		if !follow {
			return nil
		}
		wait = management.MaxLogWait
	}
}

// ends waits for the pod's end and reports whether it came; false means that a
// signal came first.
func (h host) ends(ctx context.Context, pod monitor.Pod) bool {
	poll, end := time.NewTicker(endPoll), time.After(endWait)
	defer poll.Stop()
	for {
		if h.ended(pod) {
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case <-end:
			return false
		case <-poll.C:
		}
	}
}

// ended reports whether the pod's shim has ended.
func (h host) ended(pod monitor.Pod) bool {
	found, err := monitor.Find(h.records, pod.ID)
	return errdefs.IsNotFound(err) || err == nil && found.Shim != pod.Shim
}

func writeLogJSON(w io.Writer, l monitor.LogLine) error {
	_, err := fmt.Fprintf(w, "%s\n", l.JSON)
	return err
}

// shownElsewhere are fields that have their own column in a line, or are the same
// in each line.
var shownElsewhere = []string{"seq", "time", "level", "msg", "source", "sandbox"}

// writeLogLine writes a line as text: text from a guest cannot begin another line
// or control a terminal.
func writeLogLine(w io.Writer, l monitor.LogLine) error {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(l.JSON))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return fmt.Errorf("read line %d: %w", l.Number, err)
	}
	source := l.Source
	if source == "" {
		source = "shim"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %-7s %-7s %s", l.Time.Format("2006-01-02T15:04:05.000Z07:00"), printable.Line(l.Level), printable.Line(source), message(l))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(shownElsewhere, name) {
			fmt.Fprintf(&out, " %s=%s", printable.Line(name), word(fmt.Sprint(fields[name])))
		}
	}
	out.WriteByte('\n')
	_, err := io.WriteString(w, out.String())
	return err
}

// message returns a line's message. Fields follow it: a guest's that has what
// looks like some is quoted.
func message(l monitor.LogLine) string {
	if l.Source != "" && strings.ContainsAny(l.Message, "=\"") {
		return strconv.Quote(l.Message)
	}
	return printable.Line(l.Message)
}

// word returns a value so that its end is visible.
func word(s string) string {
	if s == "" || strings.ContainsAny(s, "=\"") || strings.ContainsFunc(s, unicode.IsSpace) {
		return strconv.Quote(s)
	}
	return printable.Line(s)
}
