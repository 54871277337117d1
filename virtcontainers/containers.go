package virtcontainers

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
)

// Container finds a container by its id.
func (s *Sandbox) Container(id string) (*Container, error) {
	if c := s.find(id); c != nil && c.isCreated() {
		return c, nil
	}
	return nil, fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
}

// find returns the container of that id, also one that is being created, or
// nil.
func (s *Sandbox) find(id string) *Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[id]
}

// Containers lists the containers that were created and not deleted.
func (s *Sandbox) Containers() []*Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(s.containers)), func(c *Container) bool { return !c.isCreated() })
}

// Empty reports whether no container is left, nor one being created.
func (s *Sandbox) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.containers) == 0
}

// add registers a container that is about to be created.
func (s *Sandbox) add(c *Container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return fmt.Errorf("sandbox %s is stopping: %w", s.ID, errors.Join(s.lost, errdefs.ErrFailedPrecondition))
	}
	if _, taken := s.containers[c.ID]; taken {
		return fmt.Errorf("container %s: %w", c.ID, errdefs.ErrAlreadyExists)
	}
	if c.ID != s.ID && s.opts.Restore.keeps(c.ID) {
		return fmt.Errorf("container %s: container %s continues from one with that id, and has its directories: %w", c.ID, s.ID, errdefs.ErrAlreadyExists)
	}
	s.containers[c.ID] = c
	return nil
}

func (s *Sandbox) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, id)
}

// makeKnown makes a created container known to the engine, unless the sandbox
// has ended meanwhile: then its exit would never be reported. announce must not
// block.
func (s *Sandbox) makeKnown(c *Container, announce func(*Container)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || s.lost != nil {
		return fmt.Errorf("sandbox %s ended: %w", s.ID, errors.Join(s.lost, errdefs.ErrUnavailable))
	}
	announce(c)
	close(c.created)
	s.watchers.Go(c.watchStandIn)
	return nil
}
