package oci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/oci/monitor"
)

// consoleTimeout bounds the wait for the engine to receive a terminal.
const consoleTimeout = 30 * time.Second

// sendConsole makes a terminal, sends its master to the process that listens on
// the socket (OCI runtimes' convention: one message with the descriptor as
// SCM_RIGHTS and a name as data), and returns the slave in raw mode: line editing
// happens in the guest.
func sendConsole(ctx context.Context, socket string, size *specs.Box) (*os.File, error) {
	master, slave, err := openTerminal()
	if err != nil {
		return nil, fmt.Errorf("make terminal: %w", err)
	}
	defer master.Close()
	err = prepareTerminal(slave, size)
	if err == nil {
		err = sendFile(ctx, socket, master)
	}
	if err != nil {
		return nil, errors.Join(err, slave.Close())
	}
	return slave, nil
}

func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("unlock: %w", err), master.Close())
	}
	// TIOCGPTPEER opens the slave without its name, which may belong to another
	// mount (ioctl_tty(2)).
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, nil, errors.Join(fmt.Errorf("open slave: %w", errno), master.Close())
	}
	return master, os.NewFile(peer, "terminal"), nil
}

func prepareTerminal(slave *os.File, size *specs.Box) error {
	fd := int(slave.Fd())
	if _, err := monitor.MakeRaw(fd); err != nil {
		return err
	}
	if size == nil {
		return nil
	}
	winsize := &unix.Winsize{Row: uint16(size.Height), Col: uint16(size.Width)}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, winsize); err != nil {
		return fmt.Errorf("set terminal's size: %w", err)
	}
	return nil
}

func sendFile(ctx context.Context, socket string, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, consoleTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("connect to console socket: %w", err)
	}
	defer conn.Close()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("console socket %s: not a UNIX socket", socket)
	}
	deadline, _ := ctx.Deadline()
	if err := unixConn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, _, err := unixConn.WriteMsgUnix([]byte(f.Name()), unix.UnixRights(int(f.Fd())), nil); err != nil {
		return fmt.Errorf("send terminal: %w", err)
	}
	return nil
}
