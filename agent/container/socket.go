package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/unixsocket"
)

// OpenRoot opens the root directory of the container's first process, in its mount
// namespace. It fails when that process has been reaped.
func (c *Container) OpenRoot() (*os.File, error) {
	return c.init.openOwn("root", unix.O_PATH|unix.O_DIRECTORY)
}

// OpenPIDNamespace opens the PID namespace of the container's first process. It fails
// when that process has been reaped.
func (c *Container) OpenPIDNamespace() (*os.File, error) {
	return c.init.openOwn("ns/pid", unix.O_RDONLY)
}

// DialSocket connects to the UNIX socket at a path below root, which must be of
// the type that socket(2) has for kind: SOCK_STREAM or SOCK_SEQPACKET. It is
// looked up as if root were the process's own: no link and no ".." leads
// out of it, nor does a link of /proc (openat2(2), RESOLVE_IN_ROOT and
// RESOLVE_NO_MAGICLINKS). The caller keeps root.
func DialSocket(ctx context.Context, root *os.File, path string, kind int) (*net.UnixConn, error) {
	at, err := openInside(root, path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("connect to %s: it is not a UNIX socket", path)
	}
	conn, err := unixsocket.Connect(ctx, at, kind)
	if errors.Is(err, unix.EPROTOTYPE) {
		return nil, fmt.Errorf("connect to %s: it is a UNIX socket of another type: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}
