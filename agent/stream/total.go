package stream

import "golang.org/x/sys/unix"

// total returns the number of bytes written so far.
func (o *output) total() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endRelay()
	if o.file == nil || o.eof {
		return o.read
	}
	total := o.read
	_ = o.file.withFile(func(fd int) error {
		if !o.terminal {
			total += readable(fd)
			return nil
		}
		o.readAhead(fd)
		total = o.read
		return nil
	})
	return total
}

// readable returns FIONREAD's result; package unix has it under another name.
func readable(fd int) uint64 {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil || n < 0 {
		return 0
	}
	return uint64(n)
}

// maxAhead bounds readAhead: more than a terminal can hold, 8 KiB of flip
// buffer and 4 KiB of line discipline (drivers/tty/pty.c, n_tty.c).
const maxAhead = 64 << 10

// readAhead empties a terminal: FIONREAD does not count what is in the flip
// buffer, so it must be read.
func (o *output) readAhead(fd int) {
	block := make([]byte, 4<<10)
	for len(o.ahead) < maxAhead && !o.eof {
		n, err := readOnce(fd, block)
		o.count(n, err)
		o.ahead = append(o.ahead, block[:n]...)
		if err != nil {
			break
		}
	}
	o.wakeRead()
}
