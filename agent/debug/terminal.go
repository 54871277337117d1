package debug

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTerminal opens a new terminal: this side, which Close ends reads of, and the
// process's (ptmx(4)).
func openTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		_ = master.Close()
		return nil, nil, fmt.Errorf("unlock terminal: %w", err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	return master, slave, nil
}

// maxSize bounds a terminal's rows and columns.
const maxSize = 1 << 15

// resize changes a terminal's size. One that cannot is left.
func resize(terminal *os.File, rows, columns uint32) {
	if rows == 0 || columns == 0 {
		return
	}
	conn, err := terminal.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(min(rows, maxSize)), Col: uint16(min(columns, maxSize))})
	})
}
