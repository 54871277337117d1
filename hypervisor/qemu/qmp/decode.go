package qmp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// message is anything that QEMU sends: exactly one of its pointers is set
// (QEMU's docs/interop/qmp-spec: 2.2 greeting, 2.4 responses, 2.5 events).
type message struct {
	greeting *greeting
	event    *Event
	reply    *reply
}

type greeting struct {
	Version      Version           `json:"version"`
	Capabilities []json.RawMessage `json:"capabilities"`
}

// reply answers the command with the same id: err is set when QEMU refused.
type reply struct {
	id    uint64
	value json.RawMessage
	err   *Error
}

// wire has the top-level keys of all messages.
type wire struct {
	QMP    *greeting       `json:"QMP"`
	Event  string          `json:"event"`
	ID     json.RawMessage `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *Error          `json:"error"`
}

// errNoID is a reply to no command: QEMU leaves the id out when it could not
// parse what we sent.
var errNoID = errors.New("reply without a known id")

// decode parses one line. What it returns shares no memory with line.
func decode(line []byte) (message, error) {
	var w wire
	if err := json.Unmarshal(line, &w); err != nil {
		return message{}, fmt.Errorf("decode message: %w", err)
	}
	switch {
	case w.QMP != nil:
		return message{greeting: w.QMP}, nil
	case w.Event != "":
		ev := new(Event)
		if err := json.Unmarshal(line, ev); err != nil {
			return message{}, fmt.Errorf("decode event %q: %w", w.Event, err)
		}
		return message{event: ev}, nil
	case w.Error != nil || w.Return != nil:
		id, err := strconv.ParseUint(string(bytes.TrimSpace(w.ID)), 10, 64)
		if err != nil {
			return message{}, fmt.Errorf("decode reply %.200q: %w", line, errNoID)
		}
		if w.Error != nil {
			w.Error.bound()
		}
		return message{reply: &reply{id: id, value: w.Return, err: w.Error}}, nil
	}
	return message{}, fmt.Errorf("decode message: %.200q is not a greeting, an event or a reply", line)
}
