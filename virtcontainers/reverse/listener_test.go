package reverse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
	"github.com/katabox/katabox/virtcontainers/guest"
)

var somewhere = &api.ReverseListen{Place: &api.ReverseListen_Tcp{Tcp: "127.0.0.11:53"}}

// listen starts a Listener and returns the guest's end of its connection.
func (h *hostile) listen(dial DialFunc) (*Listener, *net.UnixConn) {
	h.t.Helper()
	l, err := Listen(h.t.Context(), h.open, somewhere, dial)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			h.t.Error(err)
		}
	})
	o := h.next()
	if diff := cmp.Diff(&api.ReverseOpen{What: &api.ReverseOpen_Listen{Listen: somewhere}}, o.what, protocmp.Transform()); diff != "" {
		h.t.Error(diff)
	}
	return l, o.conn
}

// announce sends the announcement of a waiting connection.
func announce(t *testing.T, control net.Conn, id uint64) {
	t.Helper()
	if err := api.WriteFrame(control, &api.Incoming{Connection: id}); err != nil {
		t.Fatal(err)
	}
}

func TestListenerJoins(t *testing.T) {
	h := newGuest(t)
	servers := make(chan *net.UnixConn, 1)
	_, control := h.listen(func(ctx context.Context) (relay.HalfCloser, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the dial is not bounded")
		}
		near, far := pair(t)
		servers <- far
		return near, nil
	})
	announce(t, control, 7)
	taken := h.next()
	if taken.what.GetTake() != 7 || !taken.what.GetMarked() {
		t.Errorf("took %v", taken.what)
	}
	server := <-servers
	_, _ = io.WriteString(taken.conn, "question")
	_ = taken.conn.CloseWrite()
	if got, err := io.ReadAll(server); err != nil || string(got) != "question" {
		t.Errorf("%q, %v", got, err)
	}
	_, _ = io.WriteString(server, "answer")
	_ = server.Close()
	if got, err := io.ReadAll(taken.conn); err != nil || string(got) != "answer" {
		t.Errorf("%q, %v", got, err)
	}
}

// A connection that could not be taken is asked for again: it keeps a place in the guest
// until the agent has answered.
func TestTakesUntilTheAgentAnswers(t *testing.T) {
	h := newGuest(t)
	h.losses = make(chan error, 2)
	h.losses <- errInjected
	h.losses <- syscall.ECONNRESET
	_, control := h.listen(func(context.Context) (relay.HalfCloser, error) {
		near, _ := pair(t)
		return near, nil
	})
	announce(t, control, 7)
	if taken := h.next(); taken.what.GetTake() != 7 || h.takes.Load() != 3 {
		t.Errorf("after %d tries it took %v", h.takes.Load(), taken.what)
	}
	// The end of the announcements ends the tries.
	h = newGuest(t)
	h.refuse = errInjected
	l, control := h.listen(nil)
	announce(t, control, 1)
	_ = control.Close()
	l.running.Wait()
}

// A refusal is an answer.
func TestAsksOnceForWhatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control, host := net.Pipe()
		var takes atomic.Int32
		l, err := Listen(t.Context(), func(_ context.Context, what *api.ReverseOpen) (guest.Conn, error) {
			if what.GetListen() != nil {
				return piped{host}, nil
			}
			takes.Add(1)
			return nil, fmt.Errorf("take: %w", guest.RefusedError("it does not wait"))
		}, somewhere, nil)
		if err != nil {
			t.Fatal(err)
		}
		announce(t, control, 1)
		time.Sleep(2 * takeTimeout)
		if n := takes.Load(); n != 1 {
			t.Errorf("asked %d times for what was refused", n)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// piped is a connection in memory.
type piped struct{ net.Conn }

func (p piped) CloseWrite() error { return p.Close() }

func TestNobodyOnTheHost(t *testing.T) {
	h := newGuest(t)
	_, control := h.listen(func(context.Context) (relay.HalfCloser, error) { return nil, errInjected })
	for id := range uint64(3) { // and the next are still served
		announce(t, control, id)
		if n, err := h.next().conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("read %d bytes, %v", n, err)
		}
	}
}

// A flood of announcements is not read beyond the bound; Close ends everything.
func TestAnnouncementsAreBounded(t *testing.T) {
	h := newGuest(t)
	l, control := h.listen(func(context.Context) (relay.HalfCloser, error) {
		near, _ := pair(t)
		return near, nil
	})
	_ = control.SetWriteDeadline(time.Now().Add(5 * time.Second))
	sent := 0
	for err := error(nil); err == nil && sent < 1<<20; sent++ {
		err = api.WriteFrame(control, &api.Incoming{Connection: uint64(sent)})
	}
	if sent == 1<<20 {
		t.Error("the host reads without end")
	}
	if n := len(h.opened); n > maxConnections {
		t.Errorf("%d connections, at most %d wanted", n, maxConnections)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for len(h.opened) > 0 {
		if n, err := h.next().conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection is left: read %d bytes, %v", n, err)
		}
	}
}

// An invalid announcement ends the listener, and nothing else.
func TestGarbageInsteadOfAnnouncements(t *testing.T) {
	for _, garbage := range []string{"\xff\xff\xff\xff", "\x00\x00\x00\x01\xff", "\x00\x00", ""} {
		h := newGuest(t)
		h.refuse = errInjected
		l, control := h.listen(func(context.Context) (relay.HalfCloser, error) {
			t.Error("dialled")
			return nil, errInjected
		})
		_, _ = io.WriteString(control, garbage)
		_ = control.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestListenRefused(t *testing.T) {
	h := newGuest(t)
	h.refuse = errInjected
	_, control := h.listen(func(context.Context) (relay.HalfCloser, error) {
		t.Error("dialled, though the guest's connection could not be taken")
		return nil, errInjected
	})
	announce(t, control, 1)
	if _, err := Listen(t.Context(), func(context.Context, *api.ReverseOpen) (guest.Conn, error) { return nil, errInjected }, somewhere, nil); !errors.Is(err, errInjected) {
		t.Errorf("listened: %v", err)
	}
}
