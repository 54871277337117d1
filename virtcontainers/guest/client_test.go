package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// The agent is dialled again while nothing listens, and only then.
func TestConnectRetries(t *testing.T) {
	for _, err := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)} {
		a, tries := newAgent(t), 0
		a.Hook(fakeguest.Dial+" 1024", func(context.Context, proto.Message) error {
			if tries++; tries < 4 {
				return err
			}
			return nil
		})
		c := connect(t, a)
		if tries != 4 || c.Info.GetAgentVersion() != "fake" {
			t.Errorf("%d tries, agent %v", tries, c.Info)
		}
	}
	a := newAgent(t)
	a.Fail(fakeguest.Dial+" 1024", errInjected)
	if _, err := guest.Connect(t.Context(), a.Dial); !errors.Is(err, errInjected) || len(a.Calls()) != 1 {
		t.Errorf("got %v after %v", err, a.Calls())
	}
}

func TestConnectEndsWithContext(t *testing.T) {
	a := newAgent(t)
	a.Fail(fakeguest.Dial+" 1024", syscall.ECONNREFUSED)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errInjected)
	defer cancel()
	if _, err := guest.Connect(ctx, a.Dial); !errors.Is(err, errInjected) {
		t.Errorf("nothing listens: %v", err)
	}

	a.Fail(fakeguest.Dial+" 1024", nil)
	hanging := a.Hang("Hello")
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-hanging
		stop()
	}()
	if _, err := guest.Connect(ctx, a.Dial); !errors.Is(err, context.Canceled) {
		t.Errorf("the agent hangs: %v", err)
	}
}

func TestConnectFails(t *testing.T) {
	a := newAgent(t)
	a.Speak(api.ProtocolVersion + 1)
	_, err := guest.Connect(t.Context(), a.Dial)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("version %d of the protocol, want %d", api.ProtocolVersion+1, api.ProtocolVersion)) {
		t.Errorf("another version: %v", err)
	}
	a.Fail("Hello", errdefs.ErrNotImplemented)
	if _, err := guest.Connect(t.Context(), a.Dial); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "greet agent") {
		t.Errorf("no greeting: %v", err)
	}
	a.Speak(0)
	a.Hook("Hello", func(context.Context, proto.Message) error {
		go a.Die()
		return nil
	})
	// The agent may be gone before its answer arrives.
	if c, err := guest.Connect(t.Context(), a.Dial); err == nil {
		_ = c.Close()
	} else if !guest.Disconnected(err) {
		t.Errorf("the agent dies: %v", err)
	}
}

// A guest that answers with garbage makes calls fail, but does no other harm.
func TestConnectToGarbage(t *testing.T) {
	for _, garbage := range []string{"", "HTTP/1.1 400 Bad Request\r\n\r\n", strings.Repeat("\xff", 64), strings.Repeat("\x00", 64)} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := guest.Connect(ctx, func(context.Context, uint32) (guest.Conn, error) {
			host, other, err := fakeguest.SocketPair()
			if err != nil {
				return nil, err
			}
			go func() {
				defer other.Close()
				buf := make([]byte, 4096)
				_, _ = other.Read(buf)
				_, _ = io.WriteString(other, garbage)
			}()
			return host, nil
		})
		cancel()
		if err == nil {
			t.Errorf("greeted by %q", garbage)
		}
	}
}

func TestSetupSandbox(t *testing.T) {
	a := newBareAgent(t)
	c := connect(t, a)
	before := time.Now()
	if err := c.SetupSandbox(t.Context(), &api.SetupSandboxRequest{SandboxId: "s"}); err != nil {
		t.Fatal(err)
	}
	got := a.Setup()
	if at := got.GetHostTime().AsTime(); got.GetSandboxId() != "s" || at.Before(before) || at.After(time.Now()) {
		t.Errorf("the agent was told %v", got)
	}
	first := got.GetEntropy()
	a = newBareAgent(t)
	c = connect(t, a)
	if err := c.SetupSandbox(t.Context(), &api.SetupSandboxRequest{}); err != nil {
		t.Fatal(err)
	}
	if second := a.Setup().GetEntropy(); len(first) != api.EntropyBytes || len(second) != api.EntropyBytes || bytes.Equal(first, second) {
		t.Errorf("entropy of two guests: %x, %x", first, second)
	}
	a.Fail("SetupSandbox", errdefs.ErrInvalidArgument)
	if err := c.SetupSandbox(t.Context(), &api.SetupSandboxRequest{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("got %v", err)
	}
}

func TestPing(t *testing.T) {
	a := newAgent(t)
	c := connect(t, a)
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	a.Hang("Hello")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx); err == nil {
		t.Error("a guest that hangs answered")
	}
}

func TestEvents(t *testing.T) {
	a := newAgent(t)
	c := connect(t, a)
	want := []string{"c1", "c2", "c3"}
	for _, id := range want {
		a.OOM(id) // earlier events are delivered too
	}
	a.EndEvents()
	var got []string
	err := c.Events(t.Context(), func(ev *api.Event) {
		if oom := ev.GetOom(); oom != nil {
			got = append(got, oom.ContainerId)
		}
	})
	if err == nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("events %v, then %v", got, err)
	}
}

func TestEventsEnd(t *testing.T) {
	t.Run("context", func(t *testing.T) {
		c := connect(t, newAgent(t))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := c.Events(ctx, func(*api.Event) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("death", func(t *testing.T) {
		a := newAgent(t)
		c := connect(t, a)
		a.OOM("c1")
		if err := c.Events(t.Context(), func(*api.Event) { go a.Die() }); !guest.Disconnected(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		a := newAgent(t)
		c := connect(t, a)
		a.Fail("Events", errdefs.ErrUnavailable)
		if err := c.Events(t.Context(), func(*api.Event) {}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("closed", func(t *testing.T) {
		c := connect(t, newAgent(t))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Events(t.Context(), func(*api.Event) {}); !guest.Disconnected(err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestErr(t *testing.T) {
	if guest.Err(nil) != nil {
		t.Error("an error from nothing")
	}
	for _, err := range []error{ttrpc.ErrClosed, context.Canceled, context.DeadlineExceeded, net.ErrClosed} {
		if got := guest.Err(fmt.Errorf("call: %w", err)); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	a := newAgent(t)
	c := connect(t, a)
	for _, kind := range []error{
		errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrInvalidArgument, errdefs.ErrFailedPrecondition,
		errdefs.ErrNotImplemented, errdefs.ErrUnavailable, errdefs.ErrInternal,
	} {
		a.Fail("Hello", fmt.Errorf("it went wrong: %w", kind))
		if err := c.Ping(t.Context()); !errors.Is(err, kind) || !strings.Contains(err.Error(), "it went wrong") {
			t.Errorf("%v became %v", kind, err)
		}
	}
}

func TestDisconnected(t *testing.T) {
	for _, err := range []error{ttrpc.ErrClosed, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET, syscall.ENODEV} {
		if !guest.Disconnected(fmt.Errorf("call: %w", err)) {
			t.Errorf("%v is not the end of a connection", err)
		}
	}
	for _, err := range []error{nil, errInjected, errdefs.ErrNotFound, context.Canceled} {
		if guest.Disconnected(err) {
			t.Errorf("%v is the end of a connection", err)
		}
	}
}

// An agent's error is passed on only up to a bound.
func TestErrIsBounded(t *testing.T) {
	a := newAgent(t)
	c := connect(t, a)
	a.Fail("Hello", fmt.Errorf("%s: %w", strings.Repeat("ä", 1<<20), errdefs.ErrNotFound))
	err := c.Ping(t.Context())
	if !errdefs.IsNotFound(err) || len(err.Error()) > 17<<10 || !utf8.ValidString(err.Error()) {
		t.Errorf("%d bytes of an error: %.100q", len(err.Error()), err)
	}
}
