package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	goqmp "github.com/digitalocean/go-qemu/qmp"
)

// This file implements go-qemu's Monitor, whose calls have no context.

var _ goqmp.Monitor = (*Monitor)(nil)

// connectTimeout bounds Connect.
const connectTimeout = 10 * time.Second

// Connect is Handshake within connectTimeout.
func (m *Monitor) Connect() error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return m.Handshake(ctx)
}

// Events is like Subscribe, without the reason for the end.
func (m *Monitor) Events(ctx context.Context) (<-chan Event, error) {
	return m.Subscribe(ctx).C(), nil
}

// Run runs a marshalled Command and returns the reply as QEMU wrote it, without
// its id. Prefer Execute.
func (m *Monitor) Run(command []byte) ([]byte, error) {
	var cmd struct {
		Execute string          `json:"execute"`
		Args    json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(command, &cmd); err != nil {
		return nil, fmt.Errorf("decode command: %w", err)
	}
	if cmd.Execute == "" {
		return nil, errors.New("decode command: it has no name")
	}
	var args any
	if cmd.Args != nil {
		args = cmd.Args
	}
	var value json.RawMessage
	if err := m.Execute(context.Background(), cmd.Execute, args, &value); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]json.RawMessage{"return": value})
}
