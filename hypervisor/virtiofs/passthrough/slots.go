package passthrough

// slots are the descriptors of nodes, opened with O_PATH: at most limit of them
// idle, of which the least recently used is closed first. table.mu guards them.
type slots struct {
	all   []slot
	free  []int32
	limit int
	idle  int // in both chains
	// kept has the idle slots that stay open while there is room, and lent
	// those of lent trees (lent.go).
	kept, lent chain
	round      uint32 // number of passes over lent
	pinned     int
}

// chain is a list of idle slots: head is the least recently used one, tail the
// most; -1 for none.
type chain struct{ head, tail int32 }

// slot is one descriptor.
type slot struct {
	node       *node
	fd         int
	prev, next int32
	uses       int32  // while above 0 it is in no chain
	round      uint32 // slots.round when it became idle
	pinned     bool   // kept as long as its node
}

func newSlots(limit int) slots {
	return slots{limit: limit, kept: chain{-1, -1}, lent: chain{-1, -1}}
}

// insert gives a node its descriptor, in use once.
func (s *slots) insert(n *node, fd int) {
	i := int32(len(s.all))
	if last := len(s.free) - 1; last >= 0 {
		i, s.free = s.free[last], s.free[:last]
	} else {
		s.all = append(s.all, slot{})
	}
	s.all[i] = slot{node: n, fd: fd, prev: -1, next: -1, uses: 1}
	n.slot = i
}

// use begins a use of a node's slot and returns its descriptor.
func (s *slots) use(n *node) int {
	sl := &s.all[n.slot]
	if sl.uses == 0 && !sl.pinned {
		s.unlink(n.slot)
	}
	sl.uses++
	return sl.fd
}

// done ends a use. It returns a descriptor to close, or -1.
func (s *slots) done(n *node) int {
	sl := &s.all[n.slot]
	sl.uses--
	if sl.uses > 0 || sl.pinned {
		return -1
	}
	s.append(n.slot)
	if s.idle <= s.limit {
		return -1
	}
	return s.removeOldest()
}

// trim removes what is idle beyond the limit.
func (s *slots) trim(fds []int) []int {
	for s.idle > s.limit {
		fds = append(fds, s.removeOldest())
	}
	return fds
}

// removeOldest removes the idle slot that is the first to go.
func (s *slots) removeOldest() int {
	if s.kept.head >= 0 {
		return s.remove(s.all[s.kept.head].node)
	}
	return s.remove(s.all[s.lent.head].node)
}

// pin keeps a node's descriptor, which must be in use, as long as the node.
func (s *slots) pin(n *node) {
	if sl := &s.all[n.slot]; !sl.pinned {
		sl.pinned = true
		s.pinned++
	}
}

// mayPin reports whether there is room to pin another descriptor of a file that the
// guest has made or removed: it may have as many of those as nodes.
func (s *slots) mayPin() bool { return s.pinned < s.limit }

// remove removes a node's slot, which must be idle, and returns its descriptor.
func (s *slots) remove(n *node) int {
	i := n.slot
	sl := &s.all[i]
	if sl.pinned {
		s.pinned--
	} else if sl.uses == 0 {
		s.unlink(i)
	}
	fd := sl.fd
	*sl = slot{}
	s.free = append(s.free, i)
	n.slot = -1
	return fd
}

// chainOf returns the chain of a slot while it is idle.
func (s *slots) chainOf(sl *slot) *chain {
	if sl.node.tree.lent {
		return &s.lent
	}
	return &s.kept
}

func (s *slots) append(i int32) {
	sl := &s.all[i]
	c := s.chainOf(sl)
	sl.prev, sl.next, sl.round = c.tail, -1, s.round
	if c.tail >= 0 {
		s.all[c.tail].next = i
	} else {
		c.head = i
	}
	c.tail = i
	s.idle++
}

func (s *slots) unlink(i int32) {
	sl := &s.all[i]
	c := s.chainOf(sl)
	if sl.prev >= 0 {
		s.all[sl.prev].next = sl.next
	} else {
		c.head = sl.next
	}
	if sl.next >= 0 {
		s.all[sl.next].prev = sl.prev
	} else {
		c.tail = sl.prev
	}
	s.idle--
}
