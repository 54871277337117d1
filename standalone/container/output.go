package container

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The names of the outputs in the log.
const (
	stdoutName = "stdout"
	stderrName = "stderr"
)

// fullName is an output's name in messages.
var fullName = map[string]string{stdoutName: "standard output", stderrName: "standard error"}

// copyOut copies one output until its end. Output that cannot be written is still
// read, so that the command does not block.
func (s *Stdio) copyOut(name string, to io.Writer, from io.ReadCloser) {
	buf := make([]byte, relayBuffer)
	for {
		n, err := from.Read(buf)
		s.writing.Add(1)
		s.log.write(name, buf[:n])
		if n > 0 && to != nil {
			if err := writeAll(to, buf[:n]); err != nil {
				s.lost(name, err, to, from)
				to = nil
			}
		}
		s.writing.Add(-1)
		if err != nil {
			return
		}
	}
}

// fullPause is the time between two writes to a terminal that says that it has room but
// accepts nothing: a line's end may need two bytes (drivers/tty/n_tty.c, do_output_char).
const fullPause = time.Millisecond

// writeAll writes data. A descriptor may become non-blocking at any time: the flag is
// shared with the processes that have the same terminal or pipe. writeAll then waits for
// the reader as well.
func writeAll(to io.Writer, data []byte) error {
	for waited := false; ; waited = true {
		n, err := to.Write(data)
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
		data = data[n:]
		if waited && n == 0 {
			time.Sleep(fullPause)
		}
		if awaitWritable(to, -1) == 0 {
			return err
		}
	}
}

// awaitWritable waits, at most timeout milliseconds, or without a bound if that is
// negative, until a file can be written to or has failed. It returns poll(2)'s events; 0
// for what is not a file.
func awaitWritable(to io.Writer, timeout int) (events int16) {
	file, ok := to.(syscall.Conn)
	if !ok {
		return 0
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return 0
	}
	err = conn.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		for {
			if _, err := unix.Poll(fds, timeout); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		events = fds[0].Revents
	})
	if err != nil {
		return 0
	}
	return events
}

// lost is called when an output cannot be written to any more. A FIFO without a
// reader becomes a pipe without one in the guest.
func (s *Stdio) lost(name string, why error, to io.Writer, fifo io.Closer) {
	switch {
	case !hasNoReader(to, why):
		s.drop(name, why)
	case !s.terminal:
		_ = fifo.Close()
	case s.Broken != nil:
		s.Broken()
	}
}

// hasNoReader reports whether a write failed because the output has no reader any more:
// a pipe's is closed, or the terminal was hung up. A file's EIO is a bad disk.
func hasNoReader(to io.Writer, why error) bool {
	return errors.Is(why, unix.EPIPE) || errors.Is(why, unix.EIO) && awaitWritable(to, 0)&unix.POLLHUP != 0
}

// drop notes, and says, that an output's rest is dropped.
func (s *Stdio) drop(name string, why error) {
	if e, ok := errors.AsType[*fs.PathError](why); ok {
		why = e.Err // the path is /dev/stdout
	}
	err := fmt.Errorf("%s: %w: the rest is dropped", fullName[name], why)
	s.warn(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = append(s.dropped, err.Error())
}

// exitCode returns the exit code for a command that exited with the given one: the
// runtime's if the command did not fail but part of its output was dropped.
func (s *Stdio) exitCode(command int) int {
	if command == 0 && len(s.warnings()) > 0 {
		return ExitError
	}
	return command
}

// warnings returns what was said about output that was dropped.
func (s *Stdio) warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}
