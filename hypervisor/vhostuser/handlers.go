package vhostuser

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// handlers serve the requests. A nil reply means that at most an
// acknowledgement is due. An error ends the connection: QEMU does not send what
// is not offered, and after an error the two sides would not agree on the
// state.
var handlers = map[request]func(*server, *message) ([]byte, error){
	reqGetFeatures:         func(s *server, _ *message) ([]byte, error) { return encodeU64(s.offered), nil },
	reqSetFeatures:         (*server).setFeatures,
	reqGetProtocolFeatures: func(s *server, _ *message) ([]byte, error) { return encodeU64(s.protocols), nil },
	reqSetProtocolFeatures: (*server).setProtocolFeatures,
	reqGetQueueNum:         func(s *server, _ *message) ([]byte, error) { return encodeU64(uint64(len(s.rings))), nil },
	reqGetConfig:           func(s *server, m *message) ([]byte, error) { return m.configReply(s.dev.Config()) },
	reqSetOwner:            func(*server, *message) ([]byte, error) { return nil, nil },
	reqResetOwner:          (*server).resetOwner,
	reqSetMemTable:         (*server).setMemTable,
	reqSetVringNum:         (*server).setVringNum,
	reqSetVringAddr:        (*server).setVringAddr,
	reqSetVringBase:        (*server).setVringBase,
	reqGetVringBase:        (*server).getVringBase,
	reqSetVringEnable:      (*server).setVringEnable,
	reqSetVringKick:        (*server).setVringKick,
	reqSetVringCall:        (*server).setVringCall,
	reqSetVringErr:         (*server).setVringErr,
	reqSetLogBase:          refuseLog,
	reqSetLogFD:            refuseLog,
	reqSetDeviceStateFD:    (*server).setDeviceState,
	reqCheckDeviceState:    (*server).checkDeviceState,
}

func (s *server) setFeatures(m *message) ([]byte, error) {
	v, err := m.u64()
	if err != nil {
		return nil, err
	}
	if extra := v &^ s.offered; extra != 0 {
		return nil, fmt.Errorf("features %#x were not offered: %w", extra, errMalformed)
	}
	if v&featLogAll != 0 {
		return refuseLog(s, m)
	}
	s.features = v
	return nil, nil
}

func (s *server) setProtocolFeatures(m *message) ([]byte, error) {
	v, err := m.u64()
	if err != nil {
		return nil, err
	}
	if extra := v &^ s.protocols; extra != 0 {
		return nil, fmt.Errorf("protocol features %#x were not offered: %w", extra, errMalformed)
	}
	return nil, nil
}

// resetOwner stops all queues, as the protocol requires of back ends that
// support it.
func (s *server) resetOwner(*message) ([]byte, error) {
	for _, v := range s.rings {
		v.enabled = false
		v.stop()
	}
	return nil, nil
}

// setMemTable replaces the memory table. It is called again when memory is
// plugged; running queues move to the new table one by one, then the old one is
// closed.
func (s *server) setMemTable(m *message) ([]byte, error) {
	regions, err := m.memTable()
	if err != nil {
		return nil, err
	}
	mem, err := memoryOf(s.dev.Owner(), regions, m.fds)
	if err != nil {
		return nil, err
	}
	old := s.mem
	s.mem = mem
	for _, v := range s.rings {
		if moveErr := v.queue.setMemory(mem); moveErr != nil && err == nil {
			err = moveErr
		}
	}
	if closeErr := old.close(); err == nil && closeErr != nil {
		err = fmt.Errorf("unmap old memory table: %w", closeErr)
	}
	return nil, err
}

// withRing runs f on the queue that a vring state names.
func (s *server) withRing(m *message, f func(v *vring, num uint32) error) error {
	st, err := m.vringState()
	if err != nil {
		return err
	}
	v, err := s.ring(st.index)
	if err != nil {
		return err
	}
	return f(v, st.num)
}

func (s *server) setVringNum(m *message) ([]byte, error) {
	return nil, s.withRing(m, func(v *vring, num uint32) error { return v.queue.setSize(num) })
}

func (s *server) setVringBase(m *message) ([]byte, error) {
	return nil, s.withRing(m, func(v *vring, num uint32) error {
		if num > 0xffff || v.done != nil {
			return fmt.Errorf("base %d of queue %d: %w", num, v.queue.index, errMalformed)
		}
		v.base = uint16(num)
		return nil
	})
}

// getVringBase stops the queue; its kick is not used again.
func (s *server) getVringBase(m *message) ([]byte, error) {
	var reply []byte
	err := s.withRing(m, func(v *vring, _ uint32) error {
		if err := v.setKick(-1); err != nil {
			return err
		}
		reply = vringState{uint32(v.queue.index), uint32(v.base)}.encode()
		return nil
	})
	return reply, err
}

func (s *server) setVringEnable(m *message) ([]byte, error) {
	return nil, s.withRing(m, func(v *vring, num uint32) error {
		v.enabled = num != 0
		return s.update(v)
	})
}

func (s *server) setVringAddr(m *message) ([]byte, error) {
	index, addr, err := m.vringAddr()
	if err != nil {
		return nil, err
	}
	v, err := s.ring(index)
	if err != nil {
		return nil, err
	}
	return nil, v.queue.setAddr(addr)
}

// setVringKick starts the queue. Without the protocol features in the
// acknowledged ones a queue is enabled from the beginning (vhost-user.rst,
// "Ring states").
func (s *server) setVringKick(m *message) ([]byte, error) {
	v, fd, err := s.vringFile(m)
	if err != nil {
		return nil, err
	}
	if err := v.setKick(fd); err != nil {
		return nil, err
	}
	if s.features&featProtocolFeatures == 0 {
		v.enabled = true
	}
	return nil, s.update(v)
}

// update starts or stops a queue. A front end that starts one no longer waits
// for a transfer of the state, which then ends.
func (s *server) update(v *vring) error {
	if v.wanted() {
		s.endTransfer()
	}
	return v.update()
}

func (s *server) setVringCall(m *message) ([]byte, error) {
	v, fd, err := s.vringFile(m)
	if err != nil {
		return nil, err
	}
	if fd >= 0 {
		if err := takeEventfd(fd); err != nil {
			return nil, fmt.Errorf("set call of queue %d: %w", v.queue.index, err)
		}
	}
	v.queue.setCall(fd)
	return nil, nil
}

// setVringErr drops the descriptor: errors end the connection instead.
func (s *server) setVringErr(m *message) ([]byte, error) {
	_, fd, err := s.vringFile(m)
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return nil, err
}

// vringFile returns the queue, and the descriptor or -1. The caller owns the
// descriptor.
func (s *server) vringFile(m *message) (*vring, int, error) {
	index, hasFD, err := m.vringFile()
	if err != nil {
		return nil, -1, err
	}
	v, err := s.ring(index)
	if err != nil || !hasFD {
		return v, -1, err
	}
	return v, m.takeFD(), nil
}
