package vhosttest

// Steps returns the requests that set up and stop the queue, to be sent in any
// order. With n = 0 a request is valid, with other numbers invalid in different
// ways. An error means that the back end has hung up.
func (q *Queue) Steps() []func(n uint32) error {
	i := uint32(q.Index)
	send := func(req uint32, payload []byte, fds ...int) error {
		if err := q.f.Send(req, flagNeedReply, payload, fds...); err != nil {
			return err
		}
		_, err := q.f.Receive(req)
		return err
	}
	return []func(n uint32) error{
		func(uint32) error { return send(SetMemTable, q.f.Mem.Table(), q.f.Mem.FD()) },
		func(n uint32) error { return send(SetVringNum, State(i, uint32(q.Size)<<n)) },
		func(n uint32) error {
			addr := State(i, 0)
			for _, a := range []uint64{q.addrs[0], q.addrs[2], q.addrs[1], guestBase} {
				addr = append(addr, U64(q.mem.user(a)+uint64(n)<<24)...)
			}
			return send(SetVringAddr, addr)
		},
		func(n uint32) error { return send(SetVringBase, State(i, n)) },
		func(uint32) error { return send(SetVringCall, U64(uint64(i)), fileFD(q.call)) },
		func(uint32) error { return send(SetVringKick, U64(uint64(i)), fileFD(q.kick)) },
		func(uint32) error { return send(GetVringBase, State(i, 0)) },
		func(n uint32) error { return send(SetVringEnable, State(i, 1^n&1)) },
	}
}
