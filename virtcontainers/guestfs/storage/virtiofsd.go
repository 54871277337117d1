package storage

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
)

// socketName is the daemon's socket in the space, while it starts.
const socketName = "/virtiofsd.sock"

// startDaemon starts virtiofsd for a space on a socket there, connects to it,
// and unlinks the socket: the connection is the VM's, and nobody else gets
// one.
func startDaemon(opts ShareOptions, sp *space) (_ backend, conn *os.File, err error) {
	var daemon *child.Process
	var listener *os.File
	err = sp.do(func() (err error) {
		// Users of the guest's that are not root must pass through it to their
		// files.
		if err := os.Mkdir(rootOf(opts), 0o711); err != nil {
			return err
		}
		listener, err = listen(socketName)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	daemon, err = child.Start(child.Options{
		Path:       opts.Daemon,
		Args:       daemonArgs(opts),
		ExtraFiles: []*os.File{listener, sp.root},
		StderrLine: opts.LogLine,
		// The daemon is confined to the share by chroot; all else it does not
		// need.
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID,
	})
	if err != nil {
		return nil, nil, err
	}
	err = sp.do(func() (err error) {
		conn, err = connect(socketName)
		return errors.Join(err, os.Remove(socketName))
	})
	if err != nil {
		return nil, nil, errors.Join(err, abandon(daemon))
	}
	return daemonBackend{daemon}, conn, nil
}

// daemonArgs is virtiofsd's command line, in the option language of QEMU's
// own daemon, which the Rust one takes too.
func daemonArgs(opts ShareOptions) []string {
	args := []string{
		fmt.Sprintf("--fd=%d", child.FirstExtraFD),
		// Below the space's root, which has no path of the host's.
		"-o", fmt.Sprintf("source=/proc/self/fd/%d%s", child.FirstExtraFD+1, rootOf(opts)),
		"-o", "sandbox=chroot",
		"-o", "cache=" + daemonCache(opts.Cache),
		// Each mount of the share is a file system of its own in the guest,
		// with its own inode numbers.
		"-o", "announce_submounts",
		// File capabilities are extended attributes.
		"-o", "xattr",
		// The guest's kernel checks who may set a POSIX ACL. Without this it
		// passes the attribute on for any user, and the daemon is root.
		"-o", "posix_acl",
		"-o", "log_level=err",
	}
	return append(args, opts.ExtraArgs...)
}

// daemonCache translates Kata's names to QEMU's.
func daemonCache(mode string) string {
	switch mode {
	case "never":
		return "none"
	case "metadata", "":
		return "auto"
	}
	return mode
}

func listen(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for virtiofsd: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("listen for virtiofsd: %w", err)
	}
	return f, nil
}

// connect succeeds as soon as the socket listens, before the daemon accepts.
func connect(path string) (*os.File, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("connect to virtiofsd: %w", err)
	}
	defer c.Close()
	f, err := c.File()
	if err != nil {
		return nil, fmt.Errorf("connect to virtiofsd: %w", err)
	}
	return f, nil
}

// tailOf is the end of the daemon's stderr, as the end of an error message.
func tailOf(p *child.Process) string {
	tail := strings.TrimSpace(p.Stderr().String())
	if tail == "" {
		return ""
	}
	return "; virtiofsd said: " + tail
}
