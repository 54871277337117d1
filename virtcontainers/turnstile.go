package virtcontainers

import (
	"context"
	"fmt"
	"sync"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
)

// turnstile lets calls pass to a guest that runs, and counts them. It is locked
// while the sandbox hibernates; a call that comes then has the sandbox woken. While
// a container is saved it is locked too, and stays in the state of falling asleep
// until it opens. Its state is the sandbox's: nothing else says whether that sleeps.
//
//	        lock                 sleep               enter
//	[open] ------> [falling asleep] ------> [asleep] -----> [waking]
//	   ^                  |                                     |
//	   +------------------+-------------------------------------+
//	                           open
type turnstile struct {
	mu    sync.Mutex
	state wakefulness
	calls int // that have passed, and not left
	// waiting is the number of calls that wait to pass.
	waiting int
	// idle is closed when the last call has left; nil unless lock waits for that.
	idle chan struct{}
	// opened is closed when the turnstile opens; nil while it is open.
	opened chan struct{}
	// wanted is closed when a call comes while the sandbox falls asleep. wantedBy is
	// that call, or the one that wakes the sandbox.
	wanted   chan struct{}
	wantedBy string
	// from is what the sandbox is woken from; nil while it is awake, or is saved. It is
	// lock's caller's until the sandbox is asleep.
	from *slept
	// wakes gets from when the sandbox is to be woken, which ends with open. It has room
	// for one and is never full: the sandbox is asleep once for each.
	wakes chan *slept
	// ended is set once the sandbox has ended: it does not sleep any more.
	ended bool
}

// errEnding is why a sandbox that is ending does not hibernate.
var errEnding = fmt.Errorf("it is ending: %w", errdefs.ErrFailedPrecondition)

type wakefulness int

const (
	awake wakefulness = iota
	fallingAsleep
	asleep
	waking
)

// enter passes, and waits for that within ctx; leave must follow. call is what comes
// for the guest, as errors name it.
func (t *turnstile) enter(ctx context.Context, call string) (leave func(), err error) {
	for {
		opened := t.pass(call)
		if opened == nil {
			return sync.OnceFunc(t.leave), nil
		}
		select {
		case <-opened:
			t.stopWaiting()
		case <-ctx.Done():
			t.stopWaiting()
			return nil, fmt.Errorf("wait for the sandbox to wake: %w", context.Cause(ctx))
		}
	}
}

func (t *turnstile) stopWaiting() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
}

// pass returns nil if the caller has passed. Otherwise the caller waits, until
// stopWaiting, for what is returned: it is closed when the sandbox is awake.
func (t *turnstile) pass(call string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.state {
	case awake:
		t.calls++
		return nil
	case fallingAsleep:
		if !closed(t.wanted) {
			t.wantedBy = call
			close(t.wanted)
		}
	case asleep:
		t.wantedBy = call
		t.rouse()
	}
	t.waiting++
	return t.opened
}

// rouse has the sandbox woken. The caller holds mu.
func (t *turnstile) rouse() {
	t.state = waking
	t.wakes <- t.from
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls--
	if t.calls == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// tryEnter passes if the sandbox is awake; leave must follow then.
func (t *turnstile) tryEnter() (leave func(), ok bool) {
	if t.passAwake() != nil {
		return nil, false
	}
	return sync.OnceFunc(t.leave), true
}

// enterAwake is enter for what can wait: it neither has the sandbox woken nor keeps
// it from falling asleep before it has passed.
func (t *turnstile) enterAwake(ctx context.Context) (leave func(), err error) {
	for {
		opened := t.passAwake()
		if opened == nil {
			return sync.OnceFunc(t.leave), nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until the sandbox is awake: %w", context.Cause(ctx))
		}
	}
}

// passAwake returns nil if the sandbox is awake and the caller has passed, and
// otherwise what is closed when it is awake.
func (t *turnstile) passAwake() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != awake {
		return t.opened
	}
	t.calls++
	return nil
}

// lock locks the turnstile once no call is in progress; until then calls pass. from is
// what a sandbox that is to hibernate will be woken from, nil for one that is saved. It
// also waits for a sandbox that is waking. It fails with errdefs.ErrUnavailable if
// that takes longer than ctx or the sandbox falls asleep, and with
// errdefs.ErrFailedPrecondition if it hibernates.
func (t *turnstile) lock(ctx context.Context, from *slept) error {
	for {
		idle, err := t.tryLock(from)
		if idle == nil {
			return err
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("it is busy: it is waking up, or calls to the guest are under way: %w", errdefs.ErrUnavailable)
		}
	}
}

// tryLock locks, or returns what is closed when it is worth another try.
func (t *turnstile) tryLock(from *slept) (idle <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return nil, errEnding
	case t.state == asleep:
		return nil, fmt.Errorf("it hibernates already: %w", errdefs.ErrFailedPrecondition)
	case t.state == fallingAsleep:
		return nil, fmt.Errorf("it is falling asleep, or is being saved: %w", errdefs.ErrUnavailable)
	case t.state == waking:
		return t.opened, nil
	case t.calls == 0:
		t.state, t.from = fallingAsleep, from
		t.opened, t.wanted = make(chan struct{}), make(chan struct{})
		return nil, nil
	case t.idle == nil:
		t.idle = make(chan struct{})
	}
	return t.idle, nil
}

// unlessWanted returns a context that also ends when a call comes while the
// sandbox falls asleep.
func (t *turnstile) unlessWanted(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	wanted := t.wanted
	t.mu.Unlock()
	go func() {
		select {
		case <-wanted:
			cancel(t.busy())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// busy is why the sandbox does not fall asleep.
func (t *turnstile) busy() error {
	return fmt.Errorf("it is busy: %s needs it: %w", t.caller(), errdefs.ErrUnavailable)
}

// caller is the call for which the sandbox does not sleep any more.
func (t *turnstile) caller() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wantedBy
}

// sleep marks the sandbox asleep. The next call wakes it, or one that waits
// already. It fails with errdefs.ErrFailedPrecondition if the sandbox has ended.
func (t *turnstile) sleep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return errEnding
	}
	t.state = asleep
	if t.waiting > 0 {
		t.rouse()
	}
	return nil
}

// end keeps a sandbox that has ended from sleeping, and returns what one that sleeps
// would be woken from, or nil; the caller closes that. open must follow.
func (t *turnstile) end() (from *slept) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.state != fallingAsleep {
		from, t.from = t.from, nil
	}
	return from
}

// open lets calls pass again.
func (t *turnstile) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.from = awake, nil
	if t.opened != nil {
		close(t.opened)
		t.opened = nil
	}
}

// hibernation describes the sandbox's hibernation; nil if it is awake, or not asleep yet.
func (t *turnstile) hibernation() *Hibernation {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from == nil || t.state == fallingAsleep {
		return nil
	}
	return &t.from.Hibernation
}

// countersAsleep returns the statistics of the containers when the sandbox fell
// asleep; nil if it is awake.
func (t *turnstile) countersAsleep() map[string]*stats.Metrics {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from == nil {
		return nil
	}
	return t.from.counters
}
