package debug

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/pty"
)

// openTerminal opens a new terminal: this side, which Close ends reads of, and the
// process's (ptmx(4)).
func openTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	if slave, err = pty.OpenSlave(master); err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// sized is a message that may have a terminal's new size.
type sized interface {
	GetRows() uint32
	GetColumns() uint32
}

// resize changes a terminal's size if the message has one. A terminal that cannot
// be resized is left.
func resize(terminal *os.File, to sized) {
	if to.GetRows() != 0 && to.GetColumns() != 0 {
		_ = pty.Resize(terminal, uint(to.GetRows()), uint(to.GetColumns()))
	}
}
