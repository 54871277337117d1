package stream

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// inputBlock is the largest block of an input that is copied at a time: half of a
// pipe's capacity. An output's block begins with firstBlock and grows while
// reads fill it, to maxBlock when it is relayed, and its pipe to pipeBlocks of them: a process that writes much
// is woken less often, and one that writes little costs little memory.
const (
	inputBlock = 32 << 10
	firstBlock = 16 << 10
	maxBlock   = 256 << 10
	pipeBlocks = 4
)

// pipeIn makes the process's and the agent's end of an input stream.
func pipeIn(asked bool) (child, parent *os.File, err error) {
	if !asked {
		child, err = os.OpenFile(os.DevNull, os.O_RDONLY, 0)
		return child, nil, err
	}
	r, w, err := makePipe()
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(r), "stdin"), pollable(w), nil
}

// pipeOut makes the agent's and the process's end of an output stream.
func pipeOut(asked bool) (parent *watched, child *os.File, err error) {
	if !asked {
		child, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return nil, child, err
	}
	r, w, err := makePipe()
	if err != nil {
		return nil, nil, err
	}
	child = os.NewFile(uintptr(w), "output")
	file := unpolled(r, "stream")
	if parent, err = watch(file, unix.EPOLLIN); err != nil {
		return nil, nil, errors.Join(err, file.Close(), child.Close())
	}
	return parent, child, nil
}

func makePipe() (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, fmt.Errorf("make pipe: %w", err)
	}
	return fds[0], fds[1], nil
}

// pollable makes a file whose reads and writes park the goroutine, not a
// thread. The flag belongs to the open file, so it must never be set on an end
// that a process gets: programs do not expect EAGAIN on their stdio.
func pollable(fd int) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "stream")
}
