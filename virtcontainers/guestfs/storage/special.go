package storage

import (
	"path"
	"strings"
	"sync"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// specials are the binds of the share in which the guest may make what gives rights on the
// host (passthrough.Special), because a container that has one mounted may.
type specials struct {
	mu  sync.Mutex // guards all
	all map[string]special
}

// special is what the guest may make in a bind, and in the mounts below it.
type special struct{ in, below passthrough.Special }

// allow adds what a container may make in its bind, which has that name in the share. Like
// permission to write it stays as long as the bind, for all containers that have it. In a
// read-only bind it may make nothing, but mounts below that may be writable.
func (s *specials) allow(name string, b guestspec.Bind) {
	may := passthrough.Special{Devices: b.Devices, Capabilities: b.FileCapabilities}
	if may == (passthrough.Special{}) || b.RecursiveReadOnly {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]special{}
	}
	at := s.all[name]
	if !b.ReadOnly {
		at.in = either(at.in, may)
	}
	at.below = either(at.below, may)
	s.all[name] = at
}

func either(a, b passthrough.Special) passthrough.Special {
	return passthrough.Special{Devices: a.Devices || b.Devices, Capabilities: a.Capabilities || b.Capabilities}
}

// forget forgets the binds at and below a name.
func (s *specials) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.all {
		if at == name || strings.HasPrefix(at, name+"/") {
			delete(s.all, at)
		}
	}
}

// of returns what the guest may make in a mount at a path of the share. A root file
// system is in a directory that only the host's root can reach, and may have everything:
// an exec may have more capabilities than its container. What is in no bind may have
// nothing.
func (s *specials) of(where string) passthrough.Special {
	if isRootfs(where) {
		return passthrough.Special{Devices: true, Capabilities: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.all[where]; ok {
		return at.in
	}
	for dir := path.Dir(where); dir != "."; dir = path.Dir(dir) {
		if at, ok := s.all[dir]; ok {
			return at.below
		}
	}
	return passthrough.Special{}
}
