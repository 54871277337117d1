package guest

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/api"
)

// agentOf plays the agent's side of a debug connection.
func agentOf(t *testing.T, play func(net.Conn)) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	played := make(chan struct{})
	go func() {
		defer close(played)
		defer far.Close()
		play(far)
	}()
	t.Cleanup(func() {
		_ = near.Close()
		<-played
	})
	return near
}

func TestDebugSession(t *testing.T) {
	large := strings.Repeat("x", 2*api.MaxDebugData+1)
	var parts []int
	conn := agentOf(t, func(c net.Conn) {
		var open api.DebugOpen
		if err := api.ReadFrame(c, &open); err != nil || open.GetTerm() != "vt100" || open.GetRows() != 7 || !open.GetTerminal() {
			t.Errorf("%v, %v", &open, err)
		}
		_ = api.WriteFrame(c, &api.DebugOpened{})
		for {
			var in api.DebugInput
			if err := api.ReadFrame(c, &in); err != nil || in.GetEnd() {
				break
			}
			parts = append(parts, len(in.GetData()))
		}
		_ = api.WriteFrame(c, &api.DebugOutput{Data: []byte("out")})
		_ = api.WriteFrame(c, &api.DebugOutput{Exited: true, Status: 1<<8 + 3}) // cut
	})
	s, err := OpenDebug(conn, DebugProcess{Terminal: true, Term: "vt100", Rows: 7, Columns: 70})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Write([]byte(large)); n != len(large) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := s.CloseInput(); err != nil {
		t.Error(err)
	}
	if data, exited, _, err := s.Receive(); string(data) != "out" || exited || err != nil {
		t.Errorf("%q, %v, %v", data, exited, err)
	}
	if data, exited, status, err := s.Receive(); len(data) != 0 || !exited || status != 3 || err != nil {
		t.Errorf("%q, %v, %d, %v", data, exited, status, err)
	}
	if diff := cmp.Diff([]int{api.MaxDebugData, api.MaxDebugData, 1}, parts); diff != "" {
		t.Error(diff)
	}
}

// A hostile guest's answer has a bound.
func TestDebugSessionRefused(t *testing.T) {
	for name, test := range map[string]struct {
		play func(net.Conn)
		want string
	}{
		"refused": {func(c net.Conn) {
			_ = api.ReadFrame(c, new(api.DebugOpen))
			_ = api.WriteFrame(c, &api.DebugOpened{Error: "no shell"})
		}, "no shell"},
		"too much": {func(c net.Conn) {
			_ = api.ReadFrame(c, new(api.DebugOpen))
			_, _ = c.Write([]byte{1, 0, 0, 0})
		}, "at most 4096 allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := OpenDebug(agentOf(t, test.play), DebugProcess{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want one with %q", err, test.want)
			}
		})
	}
}
