package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// watch starts the goroutines that follow the guest until the sandbox ends.
func (s *Sandbox) watch() {
	s.watchers.Add(1) // so that the teardown's Wait counts them
	defer s.watchers.Done()
	s.watchers.Go(func() {
		err := s.client.Events(s.lifeCtx, s.handleEvent)
		s.lose(s.explain(s.lifeCtx, fmt.Errorf("the agent's event stream ended: %w", err)))
	})
	s.watchers.Go(func() {
		if err := s.client.ForwardLog(s.lifeCtx); err != nil {
			log.G(s.lifeCtx).WithError(err).Debug("agent log ended")
		}
	})
	s.watchers.Go(func() {
		select {
		case <-s.vm.Done():
			s.lose(s.explain(s.lifeCtx, s.death()))
		case <-s.files.Done():
			s.lose(s.explain(s.lifeCtx, s.filesLost()))
		case <-s.lifeCtx.Done():
		}
	})
	s.watchers.Go(func() { s.sizing.Watch(s.lifeCtx) })
	s.watchers.Go(func() { s.files.Watch(s.lifeCtx, s.sleeper.tryEnter) })
	s.watchers.Go(s.watchKills)
	s.watchers.Go(func() { s.sleeper.watch(s.lifeCtx) })
	s.watchers.Go(s.watchClock)
	s.watchers.Go(func() { s.stock.fill(s.lifeCtx, s.template.missed) })
	s.watchers.Go(func() { s.stock.keep(s.lifeCtx, s.template) })
	s.watchers.Go(func() { s.stock.expire(s.lifeCtx) })
	s.watchers.Go(func() { s.network.Watch(s.lifeCtx, s.resolvConfs) })
	if agent := s.opts.Config.Agent; agent.HealthInterval > 0 {
		s.watchers.Go(func() { s.watchHealth(agent.HealthInterval, agent.HealthTimeout) })
	}
}

// resolvConfs lists the resolv.conf files of the containers that run, or are
// paused.
func (s *Sandbox) resolvConfs() []string {
	var paths []string
	for _, c := range s.Containers() {
		if state := c.Info().State; state == Running || state == Paused {
			paths = append(paths, c.Bundle.ResolvConf())
		}
	}
	return paths
}

// watchHealth checks at intervals that the agent answers: a guest that
// hangs closes no connection.
func (s *Sandbox) watchHealth(interval, timeout time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.lifeCtx.Done():
			return
		}
		if s.isSilent(timeout) && s.lifeCtx.Err() == nil {
			s.lose(s.explain(s.lifeCtx, fmt.Errorf("agent health check timed out after %v", timeout)))
			return
		}
	}
}

// isSilent reports whether the agent leaves a question unanswered. One that
// hibernates is not asked.
func (s *Sandbox) isSilent(timeout time.Duration) bool {
	leave, ok := s.sleeper.tryEnter()
	if !ok {
		return false
	}
	defer leave()
	ctx, cancel := context.WithTimeout(s.lifeCtx, timeout)
	defer cancel()
	return guest.Unanswered(ctx, s.client.Ping(ctx))
}

// handleEvent handles one event from the guest. Unknown ids are the guest's
// fault and are ignored.
func (s *Sandbox) handleEvent(ev *api.Event) {
	switch e := ev.Event.(type) {
	case *api.Event_Exit:
		s.handleExit(e.Exit)
	case *api.Event_Oom:
		// The agent sends a kill before the exit that follows from it.
		if c := s.find(e.Oom.ContainerId); c != nil && !closed(c.init.known) {
			s.observer.OutOfMemory(e.Oom.ContainerId)
		}
	}
}

func (s *Sandbox) handleExit(e *api.Exit) {
	entry := log.G(s.lifeCtx).WithFields(log.Fields{"container": e.ContainerId, "exec": e.ExecId, "status": e.Status})
	c := s.find(e.ContainerId)
	if c == nil {
		entry.Debug("the guest reported the exit of an unknown container")
		return
	}
	p, err := c.Process(e.ExecId)
	if err != nil {
		entry.WithError(err).Debug("the guest reported the exit of an unknown process")
		return
	}
	if !p.takeEvent() {
		return
	}
	entry.Info("process exited")
	exit := Exit{Status: e.Status & 0xff, At: exitTime(e, p.made, time.Now())}
	s.watchers.Go(func() {
		p.finish(s.lifeCtx, exit, drained{e.StdoutBytes, e.StderrBytes}, e.Signaled)
	})
}

// exitTime returns the guest's time of an exit (its clock is kept with the
// host's), limited to between the process's creation and now.
func exitTime(e *api.Exit, made, now time.Time) time.Time {
	if at := e.ExitedAt; at.IsValid() && !at.AsTime().After(now) {
		if at.AsTime().Before(made) {
			return made
		}
		return at.AsTime()
	}
	return now
}

// lose is called when contact with the guest is lost: no call to it can succeed
// any more. The first cause counts; after Stop the loss is expected.
func (s *Sandbox) lose(cause error) {
	s.mu.Lock()
	first := s.lost == nil && !s.stopping
	if s.lost == nil {
		s.lost = cause
	}
	if first {
		s.ended.Status = ExitLost
	}
	s.mu.Unlock()
	if first {
		log.G(s.lifeCtx).WithError(cause).Error("sandbox lost")
		s.beginStop() // the exits are reported when the machine has ended
	}
}

// settleAll reports that status for every process that has not ended yet.
func (s *Sandbox) settleAll(status uint32) {
	for _, c := range s.Containers() {
		for _, p := range c.processes() {
			p.settle(Exit{Status: status, At: time.Now()}, true)
		}
	}
}

// killWait bounds how long a sandbox that ends waits for the exits of the
// containers it kills.
const killWait = 5 * time.Second

// beginStop starts the teardown, once.
func (s *Sandbox) beginStop() {
	if s.claimStop() {
		go s.teardown()
	}
}

// claimStop reports whether the caller is the one that must run the teardown;
// from now on nothing new is admitted.
func (s *Sandbox) claimStop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.stopping
	s.stopping = true
	return first
}

// teardown ends the guest's processes, then everything the boot made. It does
// not depend on a later Delete.
func (s *Sandbox) teardown() {
	defer close(s.stopped)
	s.sizing.LeaveCgroup() // takes as long as the machine's end, and need not wait for it
	status := uint32(ExitLost)
	if !s.gone() {
		status = ExitKilled
		if s.rouseToEnd() {
			s.killAll()
			s.powerOff()
		}
	}
	err := s.boot.unwind(s.lifeCtx)
	s.lose(errors.New("the sandbox was stopped"))
	s.settleAll(status)
	s.end()
	s.watchers.Wait() // nothing is reported about a stopped sandbox
	err = errors.Join(err, s.sleeper.end())
	s.tellOwn()
	if err != nil {
		log.G(s.lifeCtx).WithError(err).Error("the sandbox could not be cleaned up completely")
	}
	s.mu.Lock()
	s.stopErr, s.ended.At = err, time.Now()
	s.mu.Unlock()
	log.G(s.lifeCtx).Info("sandbox stopped")
}

// tellOwn reports the exit of the sandbox's own container, if it has one.
func (s *Sandbox) tellOwn() {
	s.mu.Lock()
	tell := s.tellLast
	s.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// killAll kills what still runs in the guest, so that the real exits are
// reported.
func (s *Sandbox) killAll() {
	ctx, cancel := context.WithTimeout(s.lifeCtx, killWait)
	defer cancel()
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	for _, c := range s.Containers() {
		if closed(c.init.known) {
			continue
		}
		if err := c.init.Kill(ctx, sigkill, true); err != nil {
			log.G(ctx).WithError(err).Debug("sandbox stops")
		}
	}
	for _, c := range s.Containers() {
		select {
		case <-c.init.known:
		case <-ctx.Done():
			return
		}
	}
}

// powerOffWait bounds how long an ending guest may take to flush its disks.
const powerOffWait = 10 * time.Second

// powerOff lets a guest with disks flush them: afterwards the host, or another
// pod, uses them. A guest without disks is stopped without that.
func (s *Sandbox) powerOff() {
	if !s.files.HasDisks() {
		return
	}
	ctx, cancel := context.WithTimeout(s.lifeCtx, powerOffWait)
	defer cancel()
	err := s.client.PowerOff(ctx)
	select {
	case <-s.vm.Done():
		return
	case <-ctx.Done():
	}
	log.G(s.lifeCtx).WithError(err).Warnf("the guest did not end within %v: its disks may lack what was written last", powerOffWait)
}

// Stop ends the sandbox and waits until it is gone. Its containers remain, so
// that their exits can be read and they can be deleted. If the sandbox has ended
// before it ordered a spare, Stop does. It may be called more than once.
func (s *Sandbox) Stop(ctx context.Context) error {
	s.beginStop()
	select {
	case <-s.stopped:
		s.stock.settle(s.lifeCtx)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.stopErr
	case <-ctx.Done():
		return fmt.Errorf("stop sandbox %s: %w", s.ID, context.Cause(ctx))
	}
}

// Ping checks that the agent answers. One that hibernates is not asked.
func (s *Sandbox) Ping(ctx context.Context) error {
	client, err := s.agent()
	if err != nil {
		return err
	}
	leave, ok := s.sleeper.tryEnter()
	if !ok {
		return nil
	}
	defer leave()
	return client.Ping(ctx)
}

// End returns how a stopped sandbox ended: with status 0 on request, with ExitLost
// otherwise.
func (s *Sandbox) End() Exit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Stopped is closed when the sandbox has ended.
func (s *Sandbox) Stopped() <-chan struct{} { return s.stopped }

// HasStopped reports whether the sandbox has ended.
func (s *Sandbox) HasStopped() bool { return closed(s.stopped) }
