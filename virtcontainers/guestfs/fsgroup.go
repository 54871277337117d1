package guestfs

import (
	"sync"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
)

// groupGiven is a group to which the files of a volume with an assigned disk were given,
// and that disk.
type groupGiven struct {
	disk string
	gid  uint32
}

// groupsGiven are a pod's, by the volume's key.
type groupsGiven struct {
	mu       sync.Mutex // guards byVolume
	byVolume map[string]groupGiven
}

func (g *groupsGiven) has(key string, given groupGiven) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byVolume[key] == given
}

func (g *groupsGiven) note(key string, given groupGiven) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byVolume == nil {
		g.byVolume = map[string]groupGiven{}
	}
	g.byVolume[key] = given
}

// groupFor returns the group to which the guest is to give a volume's files when it
// mounts them for the container, or nil. Like the kubelet it has that done once for the
// pod, before the first container: programs refuse their files when others can read what
// an init container has made private (PostgreSQL does). The group counts as given once
// the guest has created the container; until then another container has it done, too.
func (c *Container) groupFor(v volume.Volume) *api.FSGroup {
	if v.Disk.Group == nil || v.Disk.ReadOnly {
		return nil // The guest would ignore it (agent/guest, wantsGroup).
	}
	given := groupGiven{disk: v.Disk.Path, gid: v.Disk.Group.GetGid()}
	if c.groups[v.Key] == given || c.pod.groups.has(v.Key, given) {
		return nil
	}
	c.groups[v.Key] = given
	return v.Disk.Group
}

// noteGroups records that the guest has given the volumes' files to their groups.
func (c *Container) noteGroups() {
	for key, given := range c.groups {
		c.pod.groups.note(key, given)
	}
}
