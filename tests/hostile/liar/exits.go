package main

import (
	"context"
	"errors"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

// manyRepeats is how often an exit is reported.
const manyRepeats = 10_000

// noteStart remembers the container that a Start is for.
func (l *liar) noteStart(decode ttrpc.Unmarshaler) ttrpc.Unmarshaler {
	return func(into any) error {
		err := decode(into)
		if req, ok := into.(*taskapi.StartRequest); ok && err == nil {
			l.latest.Store(req.GetID())
		}
		return err
	}
}

// Events implements the Guest service: the agent's events, and others.
func (l *liar) Events(ctx context.Context, req *api.EventsRequest, out api.Guest_EventsServer) error {
	in, err := l.GuestClient.Events(ctx, req)
	if err != nil {
		return err
	}
	told, failed := make(chan *api.Event), make(chan error, 1)
	go func() {
		for {
			event, err := in.Recv()
			if err != nil {
				failed <- err
				return
			}
			told <- event
		}
	}()
	started := l.started
	for {
		select {
		case event := <-told:
			err = l.pass(out, event)
		case <-started:
			var more bool
			if more, err = l.forge(out); !more {
				started = nil
			}
		case err = <-failed:
		}
		if err != nil {
			return err
		}
	}
}

// pass sends an event of the agent, or what the lie makes of it.
func (l *liar) pass(out api.Guest_EventsServer, event *api.Event) error {
	exit := event.GetExit()
	switch {
	case exit == nil:
	case l.lie == "endless-output":
		exit.StdoutBytes = 1 << 40
	case l.lie == "no-output":
		exit.StdoutBytes, exit.StderrBytes = 0, 0
	case l.lie == "drop-exec-exits" && exit.GetExecId() != "":
		return nil
	case l.lie == "repeat-exits":
		return l.repeat(out, exit)
	}
	return out.Send(event)
}

// repeat sends an exit many times, each time with another code.
func (l *liar) repeat(out api.Guest_EventsServer, exit *api.Exit) error {
	for range manyRepeats {
		if err := out.Send(&api.Event{Event: &api.Event_Exit{Exit: exit}}); err != nil {
			return err
		}
		exit.Status = (exit.Status + 1) & 0xff
		l.toldOnce()
	}
	return nil
}

// forge sends false events, and reports whether there are more to send. It does
// not delay true events for long.
func (l *liar) forge(out api.Guest_EventsServer) (bool, error) {
	switch l.lie {
	case "forge-exits":
		return false, forgeExits(out)
	case "early-exits":
		id, _ := l.latest.Load().(string)
		return false, l.repeat(out, exitOf(id, "", 7).GetExit())
	case "flood-events":
		err := out.Send(exitOf("none", "", uint32(l.told.Load())))
		l.toldOnce()
		return l.told.Load() < manyEvents, err
	default:
		return false, nil
	}
}

// forgeExits reports exits of other pods' containers, with IDs that are paths,
// and of execs that do not exist.
func forgeExits(out api.Guest_EventsServer) error {
	for i := range uint32(1000) {
		for _, id := range []string{"", "none", "../../../etc", "neighbour", strings.Repeat("y", 1<<16)} {
			if err := errors.Join(out.Send(exitOf(id, "", i)), out.Send(exitOf(id, "../x", i)),
				out.Send(&api.Event{Event: &api.Event_Oom{Oom: &api.OOM{ContainerId: id}}})); err != nil {
				return err
			}
		}
	}
	return nil
}

func exitOf(id, execID string, status uint32) *api.Event {
	return &api.Event{Event: &api.Event_Exit{Exit: &api.Exit{
		ContainerId: id, ExecId: execID, Status: status, ExitedAt: timestamppb.New(time.Unix(1, 0)),
	}}}
}
