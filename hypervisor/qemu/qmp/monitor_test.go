package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect makes a monitor whose handshake is done.
func connect(t *testing.T) (*Monitor, *qmptest.Server) {
	t.Helper()
	conn, server := qmptest.Pair(t)
	m := New(conn)
	t.Cleanup(func() { _ = m.Disconnect() })
	go server.Handshake()
	if err := m.Connect(); err != nil {
		t.Fatal(err)
	}
	return m, server
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func nextEvent(t *testing.T, c <-chan Event) Event {
	t.Helper()
	select {
	case ev, ok := <-c:
		if !ok {
			t.Fatal("the events have ended")
		}
		return ev
	case <-bounded(t).Done():
		t.Fatal("no event")
		return Event{}
	}
}

// Each test named TestRow... covers one row of a table of defects that were
// found in go-qemu's socket monitor.

// Row 1: replies share memory with the read buffer.
func TestRowRepliesOwnTheirMemory(t *testing.T) {
	m, server := connect(t)
	sub := m.Subscribe(t.Context())
	go server.Serve(func(r qmptest.Request) any {
		var noise []string
		for i := range 20 {
			noise = append(noise, qmptest.Event(fmt.Sprintf("E%d", i), map[string]string{"x": strings.Repeat("e", 200)}))
		}
		server.Send(noise...)
		return strings.Repeat("r", 3000) + string(r.Arguments)
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var got string
			if err := m.Execute(bounded(t), "echo", i, &got); err != nil {
				t.Error(err)
			} else if want := strings.Repeat("r", 3000) + fmt.Sprint(i); got != want {
				t.Errorf("command %d: another's or a damaged reply, %d bytes", i, len(got))
			}
		})
	}
	wg.Wait()
	for i := range 8 * 20 {
		if ev := nextEvent(t, sub.C()); ev.Event != fmt.Sprintf("E%d", i%20) {
			t.Fatalf("event %d is %s", i, ev.Event)
		}
	}
}

// Row 2: a reply of more than 64 KiB kills the monitor.
func TestRowNoLineLimit(t *testing.T) {
	m, server := connect(t)
	go server.Serve(func(r qmptest.Request) any {
		if r.Execute == "query-qmp-schema" {
			return strings.Repeat("s", 3<<20)
		}
		return "alive"
	})
	for _, tt := range []struct {
		command string
		length  int
	}{{"query-qmp-schema", 3 << 20}, {"query-status", len("alive")}} {
		var got string
		if err := m.Execute(bounded(t), tt.command, nil, &got); err != nil {
			t.Fatal(err)
		}
		if len(got) != tt.length {
			t.Errorf("%s: %d bytes, want %d", tt.command, len(got), tt.length)
		}
	}
}

// Row 3: an event that is not received blocks every later command.
func TestRowUndrainedEvents(t *testing.T) {
	m, server := connect(t)
	sub := m.Subscribe(t.Context())
	go server.Serve(func(qmptest.Request) any {
		server.Send(qmptest.Event("RTC_CHANGE", nil))
		return nil
	})
	const n = 100
	for range n {
		if err := m.Execute(bounded(t), "query-status", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		nextEvent(t, sub.C())
	}
}

// Row 4: after an event before the reply to qmp_capabilities, every command
// gets the reply of the one before. Row 5: an event in the same read as that
// reply is lost.
func TestRowEventsAroundTheHandshake(t *testing.T) {
	conn, server := qmptest.Pair(t)
	m := New(conn)
	defer m.Disconnect()
	go func() {
		server.Send(qmptest.Event("BEFORE_GREETING", nil))
		server.Send(qmptest.Greeting, qmptest.Event("AFTER_GREETING", nil))
		r := server.Next()
		server.Send(qmptest.Event("BEFORE_REPLY", nil))
		server.Send(qmptest.Reply(r, struct{}{}), qmptest.Event("WITH_REPLY", nil))
		server.Serve(func(r qmptest.Request) any { return r.Execute })
	}()
	if err := m.Connect(); err != nil {
		t.Fatal(err)
	}
	if got := m.Version().String(); got != "7.2.22" {
		t.Errorf("version %s", got)
	}
	for _, command := range []string{"first", "second"} {
		var got string
		if err := m.Execute(bounded(t), command, nil, &got); err != nil || got != command {
			t.Errorf("reply to %s: %q, %v", command, got, err)
		}
	}
	events, err := m.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"BEFORE_GREETING", "AFTER_GREETING", "BEFORE_REPLY", "WITH_REPLY"} {
		if got := nextEvent(t, events); got.Event != want || got.Timestamp.Seconds != 1 {
			t.Errorf("event %+v, want %s", got, want)
		}
	}
}

// Row 6: a call cannot be bounded, and its late reply poisons the next.
func TestRowDeadlines(t *testing.T) {
	for _, tt := range []struct {
		command string
		limit   time.Duration
	}{{"quit", 5 * time.Second}, {"device_add", 30 * time.Second}, {"cont", 30 * time.Second}} {
		t.Run(tt.command, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, server := qmptest.Pipe(t)
				m := New(conn)
				defer m.Disconnect()
				unanswered := make(chan qmptest.Request, 1)
				go func() {
					server.Handshake()
					unanswered <- server.Next()
				}()
				if err := m.Connect(); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				err := m.Execute(t.Context(), tt.command, nil, nil)
				if got := time.Since(start); got != tt.limit {
					t.Errorf("gave up after %v, want %v", got, tt.limit)
				}
				var timeout *TimeoutError
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || timeout.Command != tt.command {
					t.Errorf("error: %v", err)
				}
				go func() {
					late, next := <-unanswered, server.Next()
					server.Send(qmptest.Reply(late, "late"), qmptest.Reply(late, "twice"), qmptest.Reply(next, "own"))
				}()
				var got string
				if err := m.Execute(t.Context(), "query-name", nil, &got); err != nil || got != "own" {
					t.Errorf("the next command: %q, %v", got, err)
				}
			})
		})
	}
}

func TestRepeatedReplies(t *testing.T) {
	m, server := connect(t)
	go func() {
		for range 20 {
			r := server.Next()
			line := qmptest.Reply(r, r.Execute)
			server.Send(line, line, line, line)
		}
	}()
	for i := range 20 {
		want := fmt.Sprint("c", i)
		var got string
		if err := m.Execute(bounded(t), want, nil, &got); err != nil || got != want {
			t.Fatalf("reply to %s: %q, %v", want, got, err)
		}
	}
}

func TestContextEndsCommand(t *testing.T) {
	m, server := connect(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("pod was deleted")
	go func() {
		server.Next()
		cancel(cause)
	}()
	if err := m.Execute(ctx, "query-status", nil, nil); !errors.Is(err, cause) {
		t.Errorf("error: %v", err)
	}
	go server.Serve(func(qmptest.Request) any { return nil })
	if err := m.Execute(bounded(t), "query-status", nil, nil); err != nil {
		t.Errorf("the next command: %v", err)
	}
}

// Row 7: the error's class is dropped, a closed peer is a JSON error.
func TestRowErrors(t *testing.T) {
	m, server := connect(t)
	go func() {
		r := server.Next()
		server.Send(qmptest.Reply(r, &qmptest.Refusal{Class: ClassDeviceNotFound, Desc: "Device 'x' not found"}))
		server.Next()
		server.Close()
	}()
	err := m.Execute(bounded(t), "device_del", map[string]string{"id": "x"}, nil)
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Desc != "Device 'x' not found" || !IsClass(err, ClassDeviceNotFound) {
		t.Errorf("refusal: %v", err)
	}
	if err := m.Execute(bounded(t), "quit", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed peer: %v", err)
	}
	<-m.Done()
	if err := m.Execute(bounded(t), "quit", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if got := fmt.Sprint(m.Err()); got != "monitor connection is closed: end of file" {
		t.Errorf("Err: %s", got)
	}
}

// Row 8: device_add cannot carry properties.
func TestRowProperties(t *testing.T) {
	m, server := connect(t)
	got := make(chan json.RawMessage, 1)
	go server.Serve(func(r qmptest.Request) any { got <- r.Arguments; return nil })
	args := map[string]any{"driver": "vhost-user-fs-pci", "id": "fs0", "queue-size": uint16(1024)}
	if err := m.Execute(bounded(t), "device_add", args, nil); err != nil {
		t.Fatal(err)
	}
	want := `{"driver":"vhost-user-fs-pci","id":"fs0","queue-size":1024}`
	if diff := cmp.Diff(want, string(<-got)); diff != "" {
		t.Error(diff)
	}
}

func TestPeerEndsAllCommands(t *testing.T) {
	m, server := connect(t)
	sub := m.Subscribe(t.Context())
	const n = 10
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := m.Execute(bounded(t), "query-status", nil, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("error: %v", err)
			}
		})
	}
	for range n {
		server.Next()
	}
	server.Send(qmptest.Event("SHUTDOWN", map[string]any{"guest": true}))
	server.Close()
	wg.Wait()
	if ev := nextEvent(t, sub.C()); ev.Event != "SHUTDOWN" || !isTrue(ev.Data["guest"]) {
		t.Errorf("last event: %+v", ev)
	}
	if _, ok := <-sub.C(); ok {
		t.Error("the events go on")
	}
}

func TestProtocolViolations(t *testing.T) {
	for name, line := range map[string]string{
		"no JSON":             "}{",
		"no message":          `{"x": 1}`,
		"no id":               `{"error": {"class": "GenericError", "desc": "JSON parse error"}}`,
		"foreign id":          `{"return": {}, "id": "libvirt-1"}`,
		"second greeting":     qmptest.Greeting,
		"event with bad data": `{"event": "X", "data": 7}`,
	} {
		t.Run(name, func(t *testing.T) {
			m, server := connect(t)
			server.Send(line)
			select {
			case <-m.Done():
			case <-bounded(t).Done():
				t.Fatal("the monitor goes on")
			}
			if err := m.Execute(bounded(t), "stop", nil, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestRun(t *testing.T) {
	m, server := connect(t)
	go server.Serve(func(r qmptest.Request) any {
		if r.Execute == "bad" {
			return &qmptest.Refusal{Class: ClassGenericError, Desc: "no"}
		}
		return r.Arguments
	})
	got, err := m.Run([]byte(`{"execute": "echo", "arguments": {"a": [1, 2]}}`))
	if err != nil || string(got) != `{"return":{"a":[1,2]}}` {
		t.Errorf("Run: %s, %v", got, err)
	}
	for _, bad := range []string{`{"execute": "bad"}`, `{}`, `nonsense`} {
		if _, err := m.Run([]byte(bad)); err == nil {
			t.Errorf("Run(%s) did not fail", bad)
		}
	}
}

func TestDisconnect(t *testing.T) {
	conn, _ := qmptest.Pair(t)
	fresh := New(conn)
	if err := fresh.Execute(t.Context(), "quit", nil, nil); err == nil {
		t.Error("a command before the handshake")
	}
	connected, _ := connect(t)
	for _, m := range []*Monitor{fresh, connected} {
		sub := m.Subscribe(t.Context())
		for range 2 {
			if err := m.Disconnect(); err != nil {
				t.Error(err)
			}
		}
		if _, ok := <-sub.C(); ok {
			t.Error("an event after the end")
		}
		if err := m.Connect(); err == nil {
			t.Error("connected a second time")
		}
	}
	if _, ok := <-connected.Subscribe(t.Context()).C(); ok {
		t.Error("a subscription after the end delivers")
	}
}

func TestHandshakeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := qmptest.Pipe(t)
		m := New(conn)
		defer m.Disconnect()
		start := time.Now()
		if err := m.Connect(); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != connectTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// isTrue reports whether a decoded JSON value is true.
func isTrue(v any) bool {
	b, ok := v.(bool)
	return ok && b
}
