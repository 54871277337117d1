package virtcontainers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// held has a method of the agent wait until release is called.
func (p *pod) held(method string) (release func()) {
	hold := make(chan struct{})
	p.host.Agent.Hook(method, func(ctx context.Context, _ proto.Message) error {
		select {
		case <-hold:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return func() { close(hold) }
}

// notYet checks that nothing comes.
func notYet(t *testing.T, what string, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		t.Errorf("%s: %v, too early", what, err)
	case <-time.After(50 * time.Millisecond):
	}
}

// An exec's creation does not wait until the guest has registered it and opened its
// streams; its start does.
func TestExecIsPreparedMeanwhile(t *testing.T) {
	for _, method := range []string{"Exec", fakeguest.Stream} {
		p := newPod(t)
		c := p.run(sandboxID)
		release := p.held(method)
		e, err := c.Exec(t.Context(), virtcontainers.ExecOptions{ID: "e1", Spec: anyProcess, IO: newIO(virtcontainers.Streams{Stdout: true})})
		if err != nil {
			t.Fatal(err)
		}
		started := make(chan error, 1)
		go func() { started <- e.Start(t.Context(), ignore) }()
		notYet(t, "start", started)
		release()
		if err := await(t, "start", started); err != nil {
			t.Fatal(err)
		}
	}
}

// An exec that is not started is deleted in the guest after its registration, however
// far that has come.
func TestUnstartedExecIsDeleted(t *testing.T) {
	for _, tt := range []struct {
		name string
		held string
		end  func(t *testing.T, e *virtcontainers.Process)
	}{
		{"deleted", "", func(*testing.T, *virtcontainers.Process) {}},
		{"deleted while it is registered", "Exec", func(*testing.T, *virtcontainers.Process) {}},
		{"deleted while its streams open", fakeguest.Stream, func(*testing.T, *virtcontainers.Process) {}},
		{"its start is given up", fakeguest.Stream, func(t *testing.T, e *virtcontainers.Process) {
			ctx, giveUp := context.WithCancelCause(t.Context())
			giveUp(errInjected)
			if err := e.Start(ctx, ignore); !errors.Is(err, errInjected) {
				t.Errorf("start: %v", err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPod(t)
			c := p.run(sandboxID)
			release := func() {}
			if tt.held != "" {
				release = p.held(tt.held)
			}
			e, err := c.Exec(t.Context(), virtcontainers.ExecOptions{ID: "e1", Spec: anyProcess, IO: newIO(virtcontainers.Streams{Stdin: true, Stdout: true, Stderr: true})})
			if err != nil {
				t.Fatal(err)
			}
			tt.end(t, e)
			deleted := make(chan error, 1)
			go func() {
				_, err := e.Delete(t.Context())
				deleted <- err
			}()
			if tt.held != "" {
				notYet(t, "delete", deleted)
			}
			release()
			if err := await(t, "delete", deleted); err != nil {
				t.Error(err)
			}
			if calls := p.host.Agent.Calls(); calls[len(calls)-1] != "Delete pod/e1" {
				t.Errorf("the guest's calls do not end with the deletion: %q", calls)
			}
		})
	}
}
