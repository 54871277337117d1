package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/container"
	"github.com/katabox/katabox/internal/ctxmutex"
)

// execsEnd bounds how long an init's exit waits for those of its execs, which
// SIGKILL ends immediately unless they hang in the kernel.
const execsEnd = 10 * time.Second

// task is one container: its init process and its execs.
type task struct {
	id       *currentID
	storages []*api.Storage
	init     *process
	// destroyed is set once the runtime's container is gone. Only the current
	// delete call, of which there is one at a time, uses it.
	destroyed bool
	turning   ctxmutex.Mutex // held while the container is paused or resumed

	mu    sync.Mutex
	ctr   Container           // nil until it is made
	execs map[string]*process // by exec id

	oomMu sync.Mutex // held while OOM kills are counted and reported
	ooms  uint64     // OOM kills reported so far
	over  bool       // none is reported any more
}

func (t *task) process(execID string) (*process, error) {
	if execID == "" {
		return t.init, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.execs[execID]
	if !ok {
		return nil, fmt.Errorf("process %.140q of container %s: %w", execID, t.id, errdefs.ErrNotFound)
	}
	return p, nil
}

func (t *task) addExec(p *process) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.execs[p.execID]; ok {
		return fmt.Errorf("%s: %w", p.name(), errdefs.ErrAlreadyExists)
	}
	t.execs[p.execID] = p
	return nil
}

func (t *task) removeExec(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.execs, p.execID)
}

// container returns the runtime's container, once it is made.
func (t *task) container() (Container, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctr == nil {
		return nil, fmt.Errorf("container %s is not made yet: %w", t.id, errdefs.ErrFailedPrecondition)
	}
	return t.ctr, nil
}

func (t *task) allExecs() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.execs))
}

// startedExecs returns the execs that will have an exit, or had one.
func (t *task) startedExecs() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*process
	for _, p := range t.execs {
		if p.pid() != 0 {
			list = append(list, p)
		}
	}
	return list
}

// watchInit waits for the container's init and then ends every other process of
// the container, unless none can be left.
func (p *Pod) watchInit(ctx context.Context, t *task, proc Process) {
	endOOM := p.watchOOM(ctx, t)
	exit := proc.Wait()
	ctr, err := t.container()
	if err == nil && (!ctr.EndsWithInit() || len(t.allExecs()) > 0) {
		err = ctr.Kill()
	}
	if err != nil {
		log.G(ctx).WithError(err).WithField("container", t.id.String()).Warn("processes may outlive their container's init")
	}
	t.awaitExecs(ctx)
	endOOM()
	p.finish(ctx, t, t.init, exit)
}

// watchExec waits for an exec.
func (p *Pod) watchExec(ctx context.Context, t *task, exec *process, proc Process) {
	p.finish(ctx, t, exec, proc.Wait())
}

// finish reports that a process has ended.
func (p *Pod) finish(ctx context.Context, t *task, proc *process, exit container.Exit) {
	proc.stdio.Ended()
	stdout, stderr := proc.stdio.Totals()
	p.checkOOM(t)
	if proc == t.init {
		t.endOOMs()
	}
	proc.ended(exit)
	p.events.exit(proc, exit, stdout, stderr)
	proc.wake()
	log.G(ctx).WithFields(log.Fields{
		"container": t.id.String(), "exec": proc.execID, "status": exit.Status,
	}).Info("process exited")
}

func (t *task) awaitExecs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, execsEnd)
	defer cancel()
	for _, exec := range t.startedExecs() {
		if _, err := exec.wait(ctx); err != nil {
			log.G(ctx).WithField("container", t.id.String()).Warnf("%s does not end", exec.name())
			return
		}
	}
}

// checkOOM reports OOM kills that were not reported yet.
func (p *Pod) checkOOM(t *task) {
	ctr, err := t.container()
	if err != nil {
		return
	}
	t.oomMu.Lock()
	defer t.oomMu.Unlock()
	if t.over {
		return
	}
	kills, err := ctr.OOMKills()
	if err != nil || kills <= t.ooms {
		return // An error: no memory controller, or the cgroup is gone.
	}
	t.ooms = kills
	p.events.oom(t.id)
}

// endOOMs ends the reports of OOM kills: none follows the init's exit, also if an exec
// outlives it.
func (t *task) endOOMs() {
	t.oomMu.Lock()
	defer t.oomMu.Unlock()
	t.over = true
}

// watchOOM reports OOM kills as they happen, until end is called. When end returns, none
// is being reported, and the container may be removed.
func (p *Pod) watchOOM(ctx context.Context, t *task) (end func()) {
	ctr, err := t.container()
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	p.watchers.Go(func() {
		defer close(ended)
		if err := ctr.WatchOOM(ctx, func() { p.checkOOM(t) }); err != nil {
			log.G(ctx).WithError(err).WithField("container", t.id.String()).Warn("OOM kills are reported only at exit")
		}
	})
	return func() { cancel(); <-ended }
}
