package qmp

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
)

func TestGetFD(t *testing.T) {
	m, server := connect(t)
	passed := make(chan qmptest.Request, 16)
	go server.Serve(func(r qmptest.Request) any { passed <- r; return nil })
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			r, w, err := os.Pipe()
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			if err := m.GetFD(bounded(t), name, w); err != nil {
				t.Error(err)
			}
			// Our file is still open, and its mode is unchanged.
			if err := w.SetWriteDeadline(time.Now()); err != nil {
				t.Errorf("the file left the poller: %v", err)
			}
			_ = w.Close()
			if got, err := io.ReadAll(r); err != nil || string(got) != `{"fdname":"`+name+`"}` {
				t.Errorf("through the passed file: %q, %v", got, err)
			}
		})
	}
	for range 4 {
		r := <-passed
		if r.Execute != "getfd" || len(r.Files) != 1 {
			t.Errorf("%s with %d files", r.Execute, len(r.Files))
			continue
		}
		_, _ = r.Files[0].Write(r.Arguments)
		_ = r.Files[0].Close()
	}
	wg.Wait()
}

// Nothing is sent after a descriptor until QEMU has taken it.
func TestGetFDIsAlone(t *testing.T) {
	m, server := connect(t)
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make(chan error, 1)
	go func() { got <- m.GetFD(bounded(t), "x", f) }()
	request := server.Next()
	for _, passed := range request.Files {
		_ = passed.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := m.Execute(ctx, "early", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command during getfd: %v", err)
	}
	server.Send(qmptest.Reply(request, struct{}{}))
	if err := <-got; err != nil {
		t.Error(err)
	}
	go func() {
		r := server.Next()
		server.Send(qmptest.Reply(r, r.Execute))
	}()
	var next string
	if err := m.Execute(bounded(t), "later", nil, &next); err != nil || next != "later" {
		t.Errorf("the next command is %q, %v", next, err)
	}
}

func TestGetFDOfClosedFile(t *testing.T) {
	m, server := connect(t)
	go server.Serve(func(qmptest.Request) any { return nil })
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := m.GetFD(bounded(t), "x", f); err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("error: %v", err)
	}
	if err := m.Execute(bounded(t), "stop", nil, nil); err != nil {
		t.Errorf("the monitor after a local mistake: %v", err)
	}
}

// A peer that does not read must not block a writer without end, and a partly
// sent line must not be followed by another.
func TestWriteIsBounded(t *testing.T) {
	m, server := connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		server.Skim()
		cancel()
	}()
	big := strings.Repeat("x", 4<<20)
	if err := m.Execute(ctx, "big", big, nil); !errors.Is(err, ErrClosed) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error: %v", err)
	}
	<-m.Done()
	if err := m.Execute(bounded(t), "next", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("the next command: %v", err)
	}
}

// What QEMU sent before it died is still read when writing to it fails.
func TestDyingWords(t *testing.T) {
	m, server := connect(t)
	server.Send(qmptest.Event("SHUTDOWN", map[string]any{"reason": "guest-panic"}))
	server.Close()
	if err := m.Execute(bounded(t), "query-status", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("error: %v", err)
	}
	if ev := nextEvent(t, m.Subscribe(t.Context()).C()); ev.Data["reason"] != "guest-panic" {
		t.Errorf("event: %+v", ev)
	}
}
