package container

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/rootfs"
)

// initStdio are the stdio of a container's first process.
type initStdio struct {
	files    [3]*os.File
	terminal *terminal // nil without
	null     *os.File  // the container's own, or nil
}

// openStdio opens the terminal, which becomes the process's console, or replaces
// the agent's /dev/null by the container's.
func (b *birth) openStdio(stdio Stdio) (*initStdio, error) {
	if stdio.Terminal {
		t, err := openTerminal(b.top, b.spec.ConsoleSize)
		if err != nil {
			return nil, err
		}
		b.process.console = t.master
		return &initStdio{files: [3]*os.File{t.slave, t.slave, t.slave}, terminal: t}, nil
	}
	s := &initStdio{files: [3]*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr}}
	if !rootfs.MakesDev(b.config) {
		return s, nil
	}
	var err error
	if s.null, err = openNull(b.top); err != nil {
		return nil, fmt.Errorf("error reopening /dev/null inside container: %w", err)
	}
	for i, f := range s.files {
		if isNull(f) {
			s.files[i] = s.null
		}
	}
	return s, nil
}

// openNull opens the container's /dev/null once it is known to be that device: to
// open another one may wait, or have effects.
func openNull(root *os.File) (*os.File, error) {
	handle, err := openInside(root, "dev/null", unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	if !isNull(handle) {
		return nil, errors.New("can't reopen /dev/null: container's /dev/null is invalid")
	}
	return reopen(handle, unix.O_RDWR)
}

// close closes what only the process has from now on.
func (s *initStdio) close() {
	if s.terminal != nil {
		_ = s.terminal.slave.Close()
	}
	if s.null != nil {
		_ = s.null.Close()
	}
}

// isNull reports whether a file is a null device.
func isNull(f *os.File) bool {
	var info unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &info)
	return err == nil && info.Mode&unix.S_IFMT == unix.S_IFCHR && info.Rdev == unix.Mkdev(1, 3)
}
