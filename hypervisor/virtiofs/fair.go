package virtiofs

import (
	"hash/maphash"
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// seed makes names' hashes unpredictable for a guest.
var seed = maphash.MakeSeed()

// syncs distinguishes the group of a tree's syncs from that of its other requests, and
// from those of names.
const syncs = 1 << 62

// groupOf returns a number for the group of requests that may hang together:
// those of one mount. Its syncs are another group: they also use the file systems
// of files that are mounted in it. In the share's own tree, which has the mount
// points of containers, even a lookup of a name uses the file system behind it, so
// there each name is a group.
func (p *pool) groupOf(r *wire.Request) uint64 {
	tree := p.fs.Tree(r.Node())
	switch {
	case r.Op() == wire.Syncfs:
		return uint64(tree) | syncs
	case tree != 0 || r.Op() != wire.Lookup:
		return uint64(tree)
	}
	_, name := wire.In[fuse.InHeader](r)
	entry := struct {
		dir  uint64
		name string
	}{r.Node(), string(name)}
	return maphash.Comparable(seed, entry) | 1<<63 // distinct from every tree's number
}

// enter reports whether a job may be done now. Otherwise it is parked, and done
// by the thread that finishes another one of its group.
func (p *pool) enter(j *job, group uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.group = group
	mine := p.busy[group]
	if mine > 0 && mine >= (maxThreads-(p.working-mine))/2 {
		p.parked[group] = append(p.parked[group], j)
		return false
	}
	p.busy[group]++
	p.working++
	return true
}

// leave ends a job, and returns a parked one of the same group to do next, or
// nil.
func (p *pool) leave(j *job) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if list := p.parked[j.group]; len(list) > 0 {
		next := list[0]
		list[0] = nil
		if p.parked[j.group] = list[1:]; len(list) == 1 {
			delete(p.parked, j.group)
		}
		return next
	}
	p.working--
	if p.busy[j.group]--; p.busy[j.group] == 0 {
		delete(p.busy, j.group)
	}
	return nil
}

// serves reports whether a request to one of the mounts is not answered yet.
func (p *pool) serves(trees []uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(trees, func(tree uint32) bool { return p.busy[uint64(tree)]+p.busy[uint64(tree)|syncs] > 0 })
}

// reserve reserves room to take one more request; it returns false if there is
// none. A thread that returns a request checks the queues again, so none is
// forgotten there.
func (p *pool) reserve() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= maxRequests || p.closing {
		return false
	}
	p.taken++
	return true
}

// unreserve undoes reserve.
func (p *pool) unreserve() {
	p.mu.Lock()
	p.taken--
	p.mu.Unlock()
}
