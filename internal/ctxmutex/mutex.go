// Package ctxmutex has a mutex that may be held across long calls: to the guest's
// agent, QEMU, the kernel. Unlike sync.Mutex, waiting for it ends with a context.
package ctxmutex

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Mutex is a mutual exclusion lock that serves its waiters in order of arrival.
// Its methods may be called from several goroutines. It must not be copied after
// New.
type Mutex struct{ sem *semaphore.Weighted }

// New returns an unlocked Mutex.
func New() Mutex { return Mutex{semaphore.NewWeighted(1)} }

// Lock waits until the mutex is unlocked and locks it. If ctx ends first, or
// has ended, Lock returns its cause and has not locked the mutex.
func (m Mutex) Lock(ctx context.Context) error {
	if m.sem.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// TryLock locks the mutex if nothing holds it or waits for it, and reports
// whether it did.
func (m Mutex) TryLock() bool { return m.sem.TryAcquire(1) }

// Unlock unlocks the mutex. It panics if the mutex is not locked.
func (m Mutex) Unlock() { m.sem.Release(1) }
