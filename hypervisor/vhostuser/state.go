package vhostuser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A device's state goes through a pipe of the front end (vhost-user.rst,
// "Migrating back-end state"): SET_DEVICE_STATE_FD begins the transfer, the end
// of the file completes it, and CHECK_DEVICE_STATE asks for its result. QEMU
// waits for both replies, and reads or writes the pipe in between, so the
// transfer has its own goroutine.
//
// QEMU has stopped the queues before (GET_VRING_BASE, when the machine stops),
// and in another process it starts them afterwards, at the saved positions. If
// it gives up it does not say so, but closes the pipe.

const (
	// saveWait bounds a save. QEMU's monitor does not answer meanwhile, for less
	// than the 30 s that its users wait for an answer (qmp.DefaultTimeout), so
	// that the machine can go on when the save fails.
	saveWait = 20 * time.Second
	// loadWait bounds a load: it is longer, as a load that fails ends the
	// machine. The context of what awaits the migration bounds it too.
	loadWait = 2 * time.Minute
	// stateMost is the longest state, in bytes.
	stateMost = 256 << 20
)

// Bits of SET_DEVICE_STATE_FD's reply. The low eight ones are an error.
const (
	stateRefused = 1
	stateNoFD    = 1 << 8 // the back end has no descriptor to use instead
)

var (
	errStateTooLong = fmt.Errorf("state of more than %d MiB", stateMost>>20)
	errNotOffered   = fmt.Errorf("not offered: %w", errMalformed)
)

// refuseLog ends a front end that wants writes to guest memory logged. QEMU
// adds a migration blocker for devices that cannot log, so a StateKeeper says
// that it can; but QEMU asks for it only while the device is started
// (hw/virtio/vhost.c, vhost_migration_log). In a machine that is stopped before
// its migration no device is, and when it continues, the migration's end is
// handled before the devices start (system/memory.c,
// memory_vm_change_state_handler, with the lowest priority).
func refuseLog(s *server, _ *message) ([]byte, error) {
	if s.keeper == nil {
		return nil, errNotOffered
	}
	return nil, fmt.Errorf("writes to guest memory are not logged: stop the machine before its migration begins: %w", errMalformed)
}

// transfer is one save or load.
type transfer struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
}

// setDeviceState begins a transfer. A well-formed request that cannot be served
// now only fails: QEMU then continues the machine.
func (s *server) setDeviceState(m *message) ([]byte, error) {
	if s.keeper == nil {
		return nil, errNotOffered
	}
	load, err := m.deviceState()
	if err != nil {
		return nil, err
	}
	s.endTransfer() // of which the front end has not asked for the result
	if err := s.beginTransfer(load, m); err != nil {
		s.keeper.StateMoved(fmt.Errorf("refuse to move state: %w", err))
		return encodeU64(stateRefused | stateNoFD), nil
	}
	return encodeU64(stateNoFD), nil
}

func (s *server) beginTransfer(load bool, m *message) error {
	for _, v := range s.rings {
		if v.done != nil {
			return fmt.Errorf("queue %d is running: stop the machine first", v.queue.index)
		}
		if err := v.queue.Settled(); err != nil {
			return err
		}
	}
	pipe, err := pipeOf(m.takeFD())
	if err != nil {
		return err
	}
	limit := saveWait
	if load {
		limit = loadWait
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t := &transfer{cancel: cancel, done: make(chan struct{})}
	s.moving = t
	go func() {
		defer close(t.done)
		defer cancel()
		t.err = carry(ctx, s.keeper, load, pipe)
		s.keeper.StateMoved(t.err)
	}()
	return nil
}

// pipeOf takes over a descriptor, which must be a pipe: reads and writes of one
// can be ended.
func pipeOf(fd int) (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFIFO {
		err = fmt.Errorf("mode %#o is not a pipe's", st.Mode)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("use descriptor for state: %w", err)
	}
	return os.NewFile(uintptr(fd), "state"), nil
}

// carry moves the state, and closes the pipe.
func carry(ctx context.Context, keeper StateKeeper, load bool, pipe *os.File) (err error) {
	defer func() { err = errors.Join(err, pipe.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = pipe.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	end := &bounded{pipe: pipe, left: stateMost}
	if load {
		if err := keeper.LoadState(ctx, bufio.NewReader(end)); err != nil {
			return fmt.Errorf("load state: %w", err)
		}
		return nil
	}
	w := bufio.NewWriter(end)
	err = keeper.SaveState(ctx, w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// bounded lets left bytes pass.
type bounded struct {
	pipe *os.File
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.pipe.Read(p)
	if n > b.left {
		return 0, errStateTooLong
	}
	b.left -= n
	return n, err
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, errStateTooLong
	}
	n, err := b.pipe.Write(p)
	b.left -= n
	return n, err
}

var _ io.ReadWriter = (*bounded)(nil)

// checkDeviceState waits for the transfer, and replies with its result.
func (s *server) checkDeviceState(*message) ([]byte, error) {
	if s.keeper == nil {
		return nil, errNotOffered
	}
	t, result := s.moving, uint64(stateRefused)
	if t == nil {
		return encodeU64(result), nil
	}
	select {
	case <-t.done:
	case <-s.ended:
	}
	s.endTransfer()
	if t.err == nil {
		result = 0
	}
	return encodeU64(result), nil
}

// endTransfer ends a transfer, if there is one, and waits until the device no
// longer moves its state.
func (s *server) endTransfer() {
	if t := s.moving; t != nil {
		t.cancel()
		<-t.done
		s.moving = nil
	}
}
