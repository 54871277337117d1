package monitor

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
)

// streams are the two ends of a process's stdin, stdout and stderr: the host's,
// from the engine or the user, and the FIFOs to and from the shim; -1 for none.
type streams struct {
	host, guest [3]int
	terminal    bool
	// giveUp: the host's end of an output is closed when the stream ends. A
	// process that writes something else to it keeps it.
	giveUp bool
}

// relay starts copying.
func (s streams) relay() []*relay {
	var relays []*relay
	for i := range s.guest {
		if s.guest[i] < 0 {
			continue
		}
		_, _ = unix.FcntlInt(uintptr(s.guest[i]), unix.F_SETPIPE_SZ, blockSize) // faster, if it is allowed
		r := &relay{src: s.guest[i], dst: s.host[i], stream: i, output: true, done: make(chan struct{})}
		if i == 0 {
			r.src, r.dst, r.output = s.host[i], s.guest[i], false
		}
		r.finish = func() { s.finish(i) }
		relays = append(relays, r)
		go r.run()
	}
	return relays
}

// finish propagates the end of a stream. It closes the FIFO's end: to the shim
// that is the end of input, or an output without a reader. It also closes the host's
// end of a monitor's output, so that its reader sees the end, but keeps the
// descriptor's number in use. A terminal carries all three streams and stays
// open.
func (s streams) finish(i int) {
	if i == 0 {
		endInput(s.guest[i])
		return
	}
	_ = unix.Close(s.guest[i])
	if s.terminal || !s.giveUp {
		return
	}
	null, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_ = unix.Dup3(null, s.host[i], 0)
	_ = unix.Close(null)
}

// endInput closes an input's FIFO once the shim has opened its end. A FIFO
// without an open end loses its content: the input of "echo word | kata-runtime
// exec ID cat" would be lost, and the shim would wait for a writer.
func endInput(fd int) {
	// This end is open for reading too, and hides whether the shim's end is open.
	end, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	_ = unix.Close(fd)
	if err != nil {
		return
	}
	const longest = 500 * time.Millisecond
	for wait := 5 * time.Millisecond; !hasReader(end); wait = min(2*wait, longest) {
		time.Sleep(wait) // until the process ends: the shim may never open it
	}
	_ = unix.Close(end)
}

// hasReader reports whether the other end of a FIFO is open: poll(2) reports an
// error on one end while it is not (fs/pipe.c, pipe_poll).
func hasReader(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLERR == 0
}

// ownStreams are this process's stdio. It closes the FIFOs' files, because the
// relay must be the last to close them. A terminal is in raw mode until restore
// is called: line editing happens in the guest.
func ownStreams(cfg Config, stdio *client.Stdio) (_ streams, restore func(), err error) {
	s := streams{host: [3]int{0, 1, 2}, guest: [3]int{-1, -1, -1}, terminal: cfg.Terminal}
	for i, f := range []*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr} {
		if f == nil {
			continue
		}
		if s.guest[i], err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return s, nil, fmt.Errorf("duplicate descriptor: %w", err)
		}
		if err := unix.SetNonblock(s.guest[i], false); err != nil {
			return s, nil, fmt.Errorf("make descriptor blocking: %w", err)
		}
	}
	if err := stdio.Close(); err != nil {
		return s, nil, err
	}
	restore = func() {}
	if cfg.Terminal {
		if old, err := MakeRaw(0); err == nil {
			restore = func() { _ = unix.IoctlSetTermios(0, unix.TCSETS, old) }
		}
	}
	return s, restore, nil
}

// MakeRaw turns off all processing of a terminal, as cfmakeraw(3) does, and
// returns its previous settings.
func MakeRaw(fd int) (old *unix.Termios, err error) {
	old, err = unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("get terminal's settings: %w", err)
	}
	raw := *old
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag &^= unix.CSIZE | unix.PARENB
	raw.Cflag |= unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("set terminal raw: %w", err)
	}
	return old, nil
}
