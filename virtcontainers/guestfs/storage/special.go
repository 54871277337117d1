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
	all map[string]passthrough.Special
}

// allow adds what a container may make in its bind, which has that name in the share. Like
// permission to write it stays as long as the bind, for all containers that have it.
func (s *specials) allow(name string, b guestspec.Bind) {
	if !b.Devices && !b.FileCapabilities {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]passthrough.Special{}
	}
	at := s.all[name]
	s.all[name] = passthrough.Special{Devices: at.Devices || b.Devices, Capabilities: at.Capabilities || b.FileCapabilities}
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
// an exec may have more capabilities than its container. What is mounted below a bind is
// as the bind, and all else may have nothing.
func (s *specials) of(where string) passthrough.Special {
	if isRootfs(where) {
		return passthrough.Special{Devices: true, Capabilities: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := where; at != "."; at = path.Dir(at) {
		if special, ok := s.all[at]; ok {
			return special
		}
	}
	return passthrough.Special{}
}
