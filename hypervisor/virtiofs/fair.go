package virtiofs

// enter says whether a job may be done now. Else it is parked, and is done by
// the thread that finishes another one of its tree.
func (p *pool) enter(j *job, tree uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.tree = tree
	mine := p.busy[tree]
	if mine > 0 && mine >= (maxThreads-(p.working-mine))/2 {
		p.parked[tree] = append(p.parked[tree], j)
		return false
	}
	p.busy[tree]++
	p.working++
	return true
}

// leave ends a job, and gives one of the same tree to do in its place, or nil.
func (p *pool) leave(j *job) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if list := p.parked[j.tree]; len(list) > 0 {
		next := list[0]
		list[0] = nil
		if p.parked[j.tree] = list[1:]; len(list) == 1 {
			delete(p.parked, j.tree)
		}
		return next
	}
	p.working--
	if p.busy[j.tree]--; p.busy[j.tree] == 0 {
		delete(p.busy, j.tree)
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
