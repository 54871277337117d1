package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// maxSocketPath is the longest path of a UNIX socket, in bytes (unix(7)).
const maxSocketPath = 107

func checkMonitor(m hypervisor.ExtraMonitor) error {
	switch {
	case m == hypervisor.ExtraMonitor{}:
		return nil
	case m.Language != hypervisor.MonitorHMP && m.Language != hypervisor.MonitorQMP && m.Language != hypervisor.MonitorQMPPretty:
		return fmt.Errorf("extra monitor's language %q: neither %q nor %q nor %q", m.Language,
			hypervisor.MonitorHMP, hypervisor.MonitorQMP, hypervisor.MonitorQMPPretty)
	case !filepath.IsAbs(m.Path) || len(m.Path) > maxSocketPath:
		return fmt.Errorf("extra monitor's socket %q: not an absolute path of at most %d bytes", m.Path, maxSocketPath)
	}
	return nil
}

// listenForMonitor makes the socket, accessible to root alone. QEMU needs no
// rights for that.
func listenForMonitor(path string) (*os.File, error) {
	// The directory is private: no other process makes a socket in between.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make extra monitor's socket: %w", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make extra monitor's socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), path)
	err = unix.Fchmod(fd, 0o600) // the mode that bind(2) gives the file
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("make extra monitor's socket %s: %w", path, err)
	}
	return socket, nil
}

func extraMonitor(m hypervisor.ExtraMonitor, fd int) []string {
	if m.Path == "" {
		return nil
	}
	mode := map[hypervisor.MonitorLanguage]string{
		hypervisor.MonitorHMP:       "mode=readline",
		hypervisor.MonitorQMP:       "mode=control",
		hypervisor.MonitorQMPPretty: "mode=control,pretty=on",
	}[m.Language]
	return []string{
		"-chardev", fmt.Sprintf("socket,id=extra,server=on,wait=off,fd=%d", fd),
		"-mon", "chardev=extra," + mode,
	}
}
