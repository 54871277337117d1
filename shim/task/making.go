package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/katabox/katabox/virtcontainers"
)

// making is a call of Create or Boot that is under way.
type making struct {
	// id is the container's; "" for Boot.
	id string
	// withdraw ends a Create; nil for Boot.
	withdraw context.CancelCauseFunc
	// ended is closed when the call has ended.
	ended chan struct{}
}

// begin records that an engine has called Create or Boot; end must follow. withdraw ends
// the Create. Boot has no id and no withdraw.
func (s *Service) begin(id string, withdraw context.CancelCauseFunc) *making {
	s.markUsed()
	m := &making{id, withdraw, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making = append(s.making, m)
	return m
}

// abandonAfter is the default of Options.AbandonAfter.
const abandonAfter = 5 * time.Second

// end follows begin, with the call's error. A shim that has no sandbox then, or one that
// has stopped, ends some time later, unless its engine ends it or tries again: an engine
// that died meanwhile may not know of the shim any more, or (containerd 1.6) keep it
// forever.
func (s *Service) end(m *making, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making = slices.DeleteFunc(s.making, func(other *making) bool { return other == m })
	close(m.ended)
	if err != nil && (s.sandbox == nil || s.sandbox.HasStopped()) {
		time.AfterFunc(cmp.Or(s.opts.AbandonAfter, abandonAfter), s.abandon)
	}
}

// abandon ends a shim whose engine has not come again.
func (s *Service) abandon() {
	s.mu.Lock()
	making := len(s.making) > 0
	s.mu.Unlock()
	if !making && s.empty() {
		s.opts.Exit()
	}
}

// errWithdrawn is why a creation ends whose container is deleted.
var errWithdrawn = fmt.Errorf("the container was deleted meanwhile: %w", context.Canceled)

// withdraw ends the creation of a container that is under way, and waits for its end
// within ctx. The container may have been created after all. ttrpc does not tell the shim
// that a client has given up its call: containerd calls Delete and Shutdown next, and
// does not know of a container whose creation succeeds later (core/runtime/v2,
// TaskManager.Create).
func (s *Service) withdraw(ctx context.Context, id string) error {
	s.mu.Lock()
	all := slices.Clone(s.making)
	s.mu.Unlock()
	for _, m := range all {
		if m.withdraw == nil || m.id != id {
			continue
		}
		m.withdraw(errWithdrawn)
		select {
		case <-m.ended:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of its creation: %w", context.Cause(ctx))
		}
	}
	return nil
}

// empty reports whether nothing is left to serve. The undoing of a creation is to end
// before its shim, also when the sandbox has stopped.
func (s *Service) empty() bool {
	s.mu.Lock()
	sandbox, kept, making := s.sandbox, s.booting || s.keep, len(s.making) > 0
	s.mu.Unlock()
	if kept || sandbox == nil {
		return !kept
	}
	return sandbox.Empty() || !making && sandbox.HasStopped() && len(known(sandbox)) == 0
}

// known lists the sandbox's containers that an engine may still delete. When the sandbox
// has stopped, those do not count whose bundle the engine has removed: it does not know
// them any more, or never did, and its shim would wait for their deletion forever.
func known(sandbox *virtcontainers.Sandbox) []*virtcontainers.Container {
	all := sandbox.Containers()
	if !sandbox.HasStopped() {
		return all
	}
	return slices.DeleteFunc(all, func(c *virtcontainers.Container) bool {
		_, err := os.Stat(c.Bundle.Dir)
		return errors.Is(err, fs.ErrNotExist)
	})
}
