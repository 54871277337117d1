package virtiofs

import (
	"hash/maphash"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// seed makes names' hashes ones that a guest cannot choose.
var seed = maphash.MakeSeed()

// groupOf numbers the requests that may hang together: those of one mount. In
// the share's own tree, where the mounts of containers begin, to look a name up
// already asks the file system behind it, so there each name is a group.
func (p *pool) groupOf(r *wire.Request) uint64 {
	tree := p.fs.Tree(r.Node())
	if tree != 0 || r.Op() != wire.Lookup {
		return uint64(tree)
	}
	_, name := wire.In[fuse.InHeader](r)
	entry := struct {
		dir  uint64
		name string
	}{r.Node(), string(name)}
	return maphash.Comparable(seed, entry) | 1<<63 // and no tree's number
}

// enter says whether a job may be done now. Else it is parked, and is done by
// the thread that finishes another one of its group.
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

// leave ends a job, and gives one of the same group to do in its place, or nil.
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

// reserve makes room for one more request to be taken; false if there is none.
// Who returns one looks at the queues again, so none is forgotten there.
func (p *pool) reserve() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= maxRequests || p.closing {
		return false
	}
	p.taken++
	return true
}

// unreserve gives back what reserve gave.
func (p *pool) unreserve() {
	p.mu.Lock()
	p.taken--
	p.mu.Unlock()
}
