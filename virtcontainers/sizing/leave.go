package sizing

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// leaving is this process's move out of the pod's cgroups, at the pod's end.
type leaving struct {
	begin sync.Once
	// done is closed when the process has moved or has failed to (err).
	done chan struct{}
	err  error
}

// LeaveCgroup begins to move this process out of the pod's cgroups. It does not
// wait: the kernel may take as long for the move as the machine takes to end
// (hostcgroup.Cgroup.Add). CloseCgroup waits for it. LeaveCgroup may be called
// while containers still end, and again.
func (p *Pod) LeaveCgroup() {
	p.leaving.begin.Do(func() {
		go func() {
			defer close(p.leaving.done)
			p.leaving.err = p.leave()
		}()
	})
}

// leave moves this process back to where it was.
func (p *Pod) leave() error {
	if p.cgroup == nil {
		return p.leaveShimCgroup()
	}
	<-p.cgroup.entered
	return errors.Join(p.leaveShimCgroup(), p.cgroup.Leave())
}

func (p *Pod) leaveShimCgroup() error {
	if p.shimCgroup == nil {
		return nil
	}
	return p.shimCgroup.Leave()
}

// CloseCgroup moves this process out of the pod's cgroups, if LeaveCgroup has
// not, along with its children that are left, and removes those cgroups that were
// made for the pod.
func (p *Pod) CloseCgroup(ctx context.Context) error {
	p.LeaveCgroup()
	select {
	case <-p.leaving.done:
	case <-ctx.Done():
		return fmt.Errorf("wait for the move out of the pod's cgroup: %w", context.Cause(ctx))
	}
	if p.cgroup == nil {
		return p.leaving.err
	}
	return errors.Join(p.leaving.err, p.cgroup.Release(), p.cgroup.Remove(ctx))
}
