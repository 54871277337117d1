package vsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
)

// ErrGone means that the virtual machine, or its vsock device, has ended. It is
// an ENODEV, like the kernel transport's error.
var ErrGone = fmt.Errorf("vsock device of the virtual machine is gone: %w", syscall.ENODEV)

// The kinds of transport.
const (
	KindVhost     = "vhost-vsock"
	KindVhostUser = "vhost-user-vsock"
)

// ReservedPorts is the lowest port of the host that needs no privilege: below it
// the host's kernel asks for CAP_NET_BIND_SERVICE (LAST_RESERVED_PORT in Linux's
// af_vsock.c, __vsock_bind_connectible), and never chooses one itself.
const ReservedPorts = 1024

// defaultVhostPath is the kernel's device (drivers/vhost/vsock.c).
const defaultVhostPath = "/dev/vhost-vsock"

// DeviceID is the ID of the device that Attach gives to a machine.
const DeviceID = "vsock0"

// errNotAttached and errDetaching are errors of Detach.
var (
	errNotAttached = fmt.Errorf("no machine has it: %w", errdefs.ErrFailedPrecondition)
	errDetaching   = fmt.Errorf("it is being detached: %w", errdefs.ErrFailedPrecondition)
)

// Options select and configure a transport. The zero value is ready for use.
type Options struct {
	// VhostPath is the kernel's vhost-vsock device, /dev/vhost-vsock if
	// empty. If it cannot be opened, or this process may not use reserved ports,
	// our own device is used.
	VhostPath string
}

// Transport is the host's side of one machine's vsock. The host opens every
// connection. Its methods may be called from several goroutines.
type Transport interface {
	// Kind is KindVhost or KindVhostUser.
	Kind() string
	// Attach gives the device to the machine, once, and again after Detach.
	// Afterwards, even on an error, this process holds no file that would
	// outlive the machine's, so that its death is noticed immediately.
	Attach(ctx context.Context, vm hypervisor.Attacher) error
	// Detach takes the device from the machine that has it, when the guest has
	// released it, within ctx. Every connection ends with ECONNRESET, or io.EOF
	// if the guest has closed it before; of those that it has not closed the
	// kernel drops what was not read (Linux's af_vsock.c,
	// __vsock_connectible_recvmsg). A Dial that is under way goes on. Afterwards
	// there is another device, to be attached to any machine. After an error
	// the machine has its device, as before; it may lose it later if the guest
	// was asked and releases it after all, and Detach may be called again.
	// Without a device in a machine, and during another Detach, the error is an
	// errdefs.ErrFailedPrecondition.
	Detach(ctx context.Context, vm hypervisor.Detacher) error
	// Dial connects to a port of the guest. It waits, within ctx, for a guest
	// whose driver is not up yet. The error is syscall.ECONNREFUSED if the port
	// has no listener, ErrGone after the machine's end, net.ErrClosed after
	// Close, or ctx's.
	Dial(ctx context.Context, port uint32) (Conn, error)
	// DialReserved is Dial from a host port below ReservedPorts. With vhost-vsock
	// these are shared by all of the host's processes: the connection should be
	// short. The error is a syscall.EADDRINUSE if none is free, and a
	// syscall.EACCES if this process has no CAP_NET_BIND_SERVICE.
	DialReserved(ctx context.Context, port uint32) (Conn, error)
	// Hold says whether the machine is about to be paused, or runs again:
	// between those calls connections outlive a pause, and data waits.
	Hold(paused bool)
	// Close ends every connection, and waits for everything that Open
	// started. It may be called again.
	Close() error
}

// Conn is one stream. Read returns io.EOF after the guest shut down its side or
// closed, syscall.ECONNRESET after a reset, ErrGone after the machine's end,
// each only after all data that had arrived. The addresses are *vsock.Addr of
// github.com/mdlayher/vsock.
type Conn interface {
	net.Conn
	// CloseWrite half-closes the connection: the guest gets end of file, and
	// reading is still possible.
	CloseWrite() error
}

// Open prepares the host's side of one machine's vsock: vhost-vsock if the host
// has it and lets us use it, otherwise our own device, which is being served when
// Open returns. ctx carries the logger; its end does not end the transport.
func Open(ctx context.Context, opts Options) (Transport, error) {
	path := opts.VhostPath
	if path == "" {
		path = defaultVhostPath
	}
	file, err := openVhost(path)
	if err != nil {
		log.G(ctx).WithError(err).Debug("no vhost-vsock: the vsock device is our own")
		return openUser(ctx)
	}
	if err := mayReserve(); errors.Is(err, syscall.EACCES) {
		log.G(ctx).WithError(err).Warn("the kernel's vhost-vsock cannot be used: the vsock device is our own")
		_ = file.Close() // nothing was done with it
		return openUser(ctx)
	}
	t, err := openKernel(path, file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), file.Close())
	}
	return t, nil
}
