package chaos

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/tests/harness"
)

// noticeTimeout bounds all waits once the VM is dead. It is less than the
// health check's timeout (the harness sets 120 s): a death must be noticed
// without the health check.
const noticeTimeout = 60 * time.Second

// judge checks everything that must hold once the victim is dead: each Wait
// returns, with an allowed code; what was not hit runs on; cleaning up works;
// each process's exit was reported once.
func (s *scene) judge(ctx context.Context) {
	s.t.Helper()
	if s.victim.name == engine.name {
		if err := s.revive(ctx); err != nil {
			s.t.Fatal(err)
		}
	}
	if s.victim.stays {
		s.judgeRemoval(ctx)
		return
	}
	if s.victim.takesVM {
		s.all(ctx, s.judgeWait)
		if took := time.Since(s.struck); took > noticeTimeout {
			s.t.Errorf("the last answer came %v after the strike, later than %v", took, noticeTimeout)
		}
	} else {
		s.all(ctx, s.judgeLife)
		s.all(ctx, s.judgeEnd)
	}
	if err := s.cleanUp(ctx, answerTimeout); err != nil {
		s.t.Error(err)
	}
	s.all(ctx, s.judgeExits)
}

// judgeRemoval checks that a pod of which a process is stopped can be removed in
// time, with its processes, and that each Wait returns then.
func (s *scene) judgeRemoval(ctx context.Context) {
	s.t.Helper()
	began := time.Now()
	if err := s.cleanUp(ctx, removeTimeout); err != nil {
		s.t.Errorf("remove within %v: %v", removeTimeout, err)
	}
	left := removeTimeout - time.Since(began)
	if err := awaitNone(s.d, left, harness.KindShim, harness.KindVMM, harness.KindVirtiofsd); err != nil {
		s.t.Errorf("remove within %v: %v", removeTimeout, err)
	}
	s.t.Logf("removed within %.1f s", time.Since(began).Seconds())
	s.all(ctx, s.judgeWait)
	s.all(ctx, s.judgeExits)
}

// revive starts containerd again.
func (s *scene) revive(ctx context.Context) error {
	if err := s.d.Restart(ctx); err != nil {
		return err
	}
	return s.d.Client.Reconnect() // immediately, whereas the client would wait
}

// all applies a check to all processes; the first container is last, because
// its end is the pod's.
func (s *scene) all(ctx context.Context, judge func(context.Context, *actor) error) {
	s.t.Helper()
	for _, a := range slices.Backward(s.actors) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		if err := judge(ctx, a); err != nil {
			s.t.Errorf("%s: %v", a.name, err)
		}
		cancel()
	}
}

// judgeWait checks that the Wait for a started process has returned.
func (s *scene) judgeWait(ctx context.Context, a *actor) error {
	if !a.started || a.waited {
		return nil
	}
	code, err := a.process.Wait(ctx)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("a Wait had no answer %v after the strike: %w", time.Since(s.struck), err)
	case err == nil:
		return s.judgeCode(a, code)
	case s.victim.takesShim || a.ended:
		return nil // it returned, though with an error
	}
	return err
}

// judgeLife asks the engine, which was restarted or stopped, for a process: it
// must run, unless it may have ended by itself. The earlier Wait must have ended,
// unless it still waits for a process that runs.
func (s *scene) judgeLife(ctx context.Context, a *actor) error {
	if !s.victim.passes || len(a.codes) > 0 {
		if err := s.judgeFirstWait(ctx, a); err != nil {
			return err
		}
	}
	if !a.started || len(a.codes) > 0 {
		return nil
	}
	status, err := a.process.Status(ctx)
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if status.Status != client.Running {
		return fmt.Errorf("is %s after containerd came back, want running", status.Status)
	}
	return nil
}

func (s *scene) judgeFirstWait(ctx context.Context, a *actor) error {
	if !a.started || a.waited {
		return nil
	}
	code, err := a.process.Wait(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("a Wait had no answer when containerd died: %w", err)
	}
	if err == nil {
		return s.judgeCode(a, code)
	}
	return nil
}

// judgeEnd kills a process that does not end by itself, and checks that its
// exit is available.
func (s *scene) judgeEnd(ctx context.Context, a *actor) error {
	if !a.started && !a.exec {
		a.codes = append(a.codes, killed) // by its removal
	}
	if !a.started || a.waited || a.ended {
		return nil
	}
	exit, err := a.process.Process.Wait(ctx)
	if err != nil {
		return fmt.Errorf("wait again: %w", err)
	}
	if len(a.codes) == 0 || a.unsure {
		a.codes = append(a.codes, killed)
		if err := a.process.Kill(ctx, syscall.SIGKILL); err != nil && (!a.unsure || !errdefs.IsNotFound(err)) {
			return fmt.Errorf("kill: %w", err)
		}
	}
	select {
	case e := <-exit:
		if e.Error() != nil {
			return fmt.Errorf("wait again: %w", e.Error())
		}
		return s.judgeCode(a, e.ExitCode())
	case <-ctx.Done():
		return fmt.Errorf("the second Wait had no answer: %w", ctx.Err())
	}
}

func (s *scene) judgeCode(a *actor, code uint32) error {
	if allowed := slices.Concat(a.codes, s.victim.codes); !slices.Contains(allowed, code) {
		return fmt.Errorf("exit code %d, want one of %v", code, allowed)
	}
	return nil
}

// judgeExits counts the exit events of one process.
func (s *scene) judgeExits(ctx context.Context, a *actor) error {
	least, most := 1, 1
	if a.exec && (s.victim.takesShim || !a.started) {
		least = 0 // with its shim dies the only process that knew of it
	}
	if s.victim.takesShim && len(a.codes) > 0 && !a.exec || s.victim.name == engine.name && a.ended {
		// When the connection to the shim ends, containerd reports the exit
		// again for a task that it has not finished deleting.
		most = 2
	}
	if s.victim.name == engine.name && s.tape.missed(a.process.ExitTime()) {
		least = 0 // the engine has told the exit, but had no subscriber then
	}
	if least > 0 {
		if err := s.tape.await(ctx, a.container, a.id); err != nil {
			return fmt.Errorf("%w; it exited at %v, %s", err, a.process.ExitTime(), s.tape)
		}
	}
	codes := s.tape.codes(a.container, a.id)
	if len(codes) == 0 {
		s.t.Logf("%s: no exit event; it exited at %v, %s", a.name, a.process.ExitTime(), s.tape)
	}
	if len(codes) > most || len(slices.Compact(slices.Clone(codes))) > 1 {
		return fmt.Errorf("exit events with the codes %v, want one", codes)
	}
	for _, code := range codes {
		if err := s.judgeCode(a, code); err != nil {
			return fmt.Errorf("exit event: %w", err)
		}
	}
	return nil
}
