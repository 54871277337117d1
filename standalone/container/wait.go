package container

import (
	"context"

	"github.com/containerd/containerd/api/runtime/task/v3"
)

// waiter is a call that waits for a process's end. It begins right after the process's
// creation: the shim kills a process whose waiter's connection ends
// (engine.Policy.WaiterOwnsProcess), so that none outlives this program, except one
// that was killed before its call reached the shim.
type waiter struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when what follows is set
	resp   *task.WaitResponse
	err    error
}

// beginWait begins to wait for the end of a process that exists. The call goes on when
// ctx ends; disconnect must follow.
func (p *process) beginWait(ctx context.Context) {
	shim, request := p.shim, &task.WaitRequest{ID: p.Name, ExecID: p.exec}
	w := &waiter{done: make(chan struct{})}
	ctx, w.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		defer close(w.done)
		w.resp, w.err = shim.Wait(ctx, request)
	}()
	p.exit = w
}

// wait returns the shim's answer. When ctx ends it cancels the call, and the error has
// the cause.
func (w *waiter) wait(ctx context.Context) (*task.WaitResponse, error) {
	select {
	case <-w.done:
	case <-ctx.Done():
		w.cancel(context.Cause(ctx))
		<-w.done
	}
	return w.resp, w.err
}

// stop cancels the call, if it has not ended. A nil waiter is ignored.
func (w *waiter) stop() {
	if w == nil {
		return
	}
	w.cancel(context.Canceled)
	<-w.done
}
