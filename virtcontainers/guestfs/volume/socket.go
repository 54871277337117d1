package volume

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// absentOwner is the owner and mode for a mount of type "uds" while its source
// does not exist.
var absentOwner = Owner{Mode: 0o666}

// socketVolume classifies a UNIX socket. lookErr is why its source could not be
// inspected, or nil: the source of type "uds" need not exist yet.
func socketVolume(v Volume, src source, lookErr error) (Volume, error) {
	v.Kind = Socket
	if errdefs.IsNotFound(lookErr) {
		v.Socket.Owner = absentOwner.mapped(v.IDMap)
		return v, nil
	}
	if lookErr != nil {
		return v, lookErr
	}
	if src.info.Mode().Type() != fs.ModeSocket {
		return v, fmt.Errorf(`the source of a mount of type "uds" must be a UNIX socket: %w`, errdefs.ErrInvalidArgument)
	}
	var st unix.Stat_t
	if err := unix.Stat(src.path, &st); err != nil {
		return v, &os.PathError{Op: "stat", Path: src.path, Err: err}
	}
	v.Socket.Owner = Owner{Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid}.mapped(v.IDMap)
	datagrams, err := isDatagramSocket(src.path)
	if err != nil {
		return v, err
	}
	if datagrams {
		return v, fmt.Errorf("the source is a UNIX socket for datagrams (SOCK_DGRAM); only those with connections are forwarded into a VM (SOCK_STREAM, SOCK_SEQPACKET): %w",
			errdefs.ErrNotImplemented)
	}
	v.Socket.Seqpacket, err = isSeqpacketSocket(&st)
	return v, err
}

// isDatagramSocket asks the kernel, which refuses to connect a datagram socket
// to one of another type (unix(7), EPROTOTYPE). The server does not notice
// this, whatever its type.
func isDatagramSocket(path string) (bool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	// The path may be longer than an address (108 bytes).
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(at)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", at)})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EPROTOTYPE), errors.Is(err, unix.ECONNREFUSED): // the latter: nothing listens
		return false, nil
	case errors.Is(err, unix.EPERM): // it is connected to another socket, as only a datagram socket can be
		return true, nil
	}
	return false, fmt.Errorf("inspect UNIX socket %s: %w", path, err)
}

// seqpacketType is SOCK_SEQPACKET in the table of UNIX sockets.
const seqpacketType = "0005"

// isSeqpacketSocket reports whether a SOCK_SEQPACKET socket is bound to the
// file st. The file does not show the type, and finding out by connecting would
// make a connection. A socket of another network namespace is not in the table:
// it is taken for SOCK_STREAM, as most are.
func isSeqpacketSocket(st *unix.Stat_t) (bool, error) {
	table, err := os.Open("/proc/net/unix")
	if err != nil {
		return false, fmt.Errorf("inspect UNIX sockets: %w", err)
	}
	defer table.Close()
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path (proc(5)); a path may
		// have spaces.
		fields := strings.SplitN(strings.Join(strings.Fields(lines.Text()), " "), " ", 8)
		if len(fields) < 8 || fields[4] != seqpacketType {
			continue
		}
		var bound unix.Stat_t
		if unix.Stat(fields[7], &bound) == nil && bound.Dev == st.Dev && bound.Ino == st.Ino {
			return true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("inspect UNIX sockets: %w", err)
	}
	return false, nil
}
