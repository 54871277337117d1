package vsock

import "syscall"

// snapshot returns the current connections.
func (d *device) snapshot() []*conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*conn, 0, len(d.conns))
	for _, c := range d.conns {
		all = append(all, c)
	}
	return all
}

// find returns the connection with these ports, nil if there is none.
func (d *device) find(a addrPair) *conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conns[a]
}

// insert adds a connection that is being dialled. The caller holds mu.
func (d *device) insert(a addrPair) (*conn, error) {
	if d.err != nil {
		return nil, d.err
	}
	if len(d.conns) >= maxConns {
		return nil, syscall.EMFILE
	}
	alloc := uint32(maxBufAlloc)
	if len(d.conns) >= manyConns {
		alloc = minBufAlloc
	}
	c := newConn(d, a, alloc)
	d.conns[a] = c
	return c, nil
}

// remove removes a dead connection from the table.
func (d *device) remove(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns[c.addr] == c {
		delete(d.conns, c.addr)
	}
}
