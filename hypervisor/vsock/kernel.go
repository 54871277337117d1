package vsock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	mdvsock "github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// redialPause is the time between two attempts to reach a guest that is not up. A
// kernel that refuses each of them immediately delays the first connection by as much.
const redialPause = 5 * time.Millisecond

// kernelTransport is the host kernel's vhost-vsock.
type kernelTransport struct {
	// dialCID is dialKernel, dialReservedCID is dialKernelReserved, and claim
	// opens a vhost-vsock with a context id; tests replace them.
	dialCID, dialReservedCID dialKernelFunc
	claim                    func() (*os.File, uint32, error)

	mu        sync.Mutex
	cid       uint32
	file      *os.File               // nil once passed on
	open      map[io.Closer]struct{} // what Close must end; nil afterwards
	detaching bool
	ended     bool
}

var _ Transport = (*kernelTransport)(nil)

func openVhost(path string) (*os.File, error) {
	// Not os.OpenFile, which would make it non-blocking for the machine too.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openKernel claims a context id on an open vhost-vsock, which it takes over;
// path is the file's.
func openKernel(path string, file *os.File) (*kernelTransport, error) {
	cid, err := claimCID(func(cid uint64) error { return setGuestCID(file, cid) })
	if err != nil {
		return nil, err
	}
	return &kernelTransport{
		cid: cid, file: file, dialCID: dialKernel, dialReservedCID: dialKernelReserved,
		claim: func() (*os.File, uint32, error) { return claimVhost(path) },
		open:  make(map[io.Closer]struct{}),
	}, nil
}

// claimVhost opens a vhost-vsock and claims a context id on it.
func claimVhost(path string) (*os.File, uint32, error) {
	file, err := openVhost(path)
	if err != nil {
		return nil, 0, err
	}
	cid, err := claimCID(func(cid uint64) error { return setGuestCID(file, cid) })
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, cid, nil
}

// dialKernelFunc connects to a port of a guest, once.
type dialKernelFunc func(ctx context.Context, cid, port uint32) (Conn, error)

func dialKernel(ctx context.Context, cid, port uint32) (Conn, error) {
	c, err := mdvsock.DialContext(ctx, cid, port, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Kind implements Transport.
func (t *kernelTransport) Kind() string { return KindVhost }

// Attach implements Transport. The context id stays claimed by the machine's
// own duplicate of the file; if ours stayed open, the kernel would keep the
// connections of a dead machine.
func (t *kernelTransport) Attach(ctx context.Context, vm hypervisor.Attacher) error {
	file, cid := t.takeFile()
	if file == nil {
		return errors.New("attach vsock: already attached or closed")
	}
	err := vm.Attach(ctx, hypervisor.VhostVsock{ID: DeviceID, CID: cid, File: file})
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("attach vsock: %w", err)
	}
	return nil
}

func (t *kernelTransport) takeFile() (*os.File, uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	file := t.file
	t.file = nil
	return file, t.cid
}

// Dial implements Transport.
func (t *kernelTransport) Dial(ctx context.Context, port uint32) (Conn, error) {
	return t.dial(ctx, t.dialCID, port)
}

// DialReserved implements Transport.
func (t *kernelTransport) DialReserved(ctx context.Context, port uint32) (Conn, error) {
	return t.dial(ctx, t.dialReservedCID, port)
}

// dial connects as soon as the guest's driver is up.
func (t *kernelTransport) dial(ctx context.Context, connect dialKernelFunc, port uint32) (Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempt := &kernelDial{cancel}
	if err := t.track(attempt); err != nil {
		return nil, fmt.Errorf("dial vsock: %w", err)
	}
	defer t.forget(attempt)
	for {
		cid := t.currentCID()
		c, err := connect(ctx, cid, port)
		if err == nil {
			return t.keep(c)
		}
		again, err := t.judge(ctx, cid, err)
		if !again {
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(redialPause):
		}
	}
}

// judge interprets a failed connect (net/vmw_vsock/af_vsock.c and
// virtio_transport_common.c of Linux).
func (t *kernelTransport) judge(ctx context.Context, cid uint32, err error) (again bool, _ error) {
	switch {
	case t.isClosed():
		return false, fmt.Errorf("dial vsock: %w", net.ErrClosed)
	case ctx.Err() != nil:
		return false, fmt.Errorf("dial vsock: %w", ctx.Err())
	case isNotUp(err):
		return true, nil
	case t.isDetached(cid):
		return true, nil // its device comes back
	case errors.Is(err, syscall.ECONNRESET):
		// The guest resets a request to a port without a listener.
		return false, fmt.Errorf("dial vsock: %w", syscall.ECONNREFUSED)
	case errors.Is(err, syscall.ENODEV):
		// The context id, which we had claimed, is no longer held.
		return false, fmt.Errorf("dial vsock: %w: %w", ErrGone, err)
	}
	return false, fmt.Errorf("dial vsock: %w", err)
}

// isNotUp reports whether the guest's driver is not up. Linux 6 lets the request wait for
// it, for two seconds (VSOCK_DEFAULT_CONNECT_TIMEOUT). A change that was proposed in May
// 2026 ("vhost/vsock: Refuse the connection immediately when guest isn't ready") has it
// fail immediately with ECONNREFUSED; EHOSTUNREACH says the same. The virtio transport has
// neither of the two otherwise: a port without a listener is an ECONNRESET.
func isNotUp(err error) bool {
	return errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH)
}

func (t *kernelTransport) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// Hold implements Transport: the kernel's connections outlive a pause anyway.
func (t *kernelTransport) Hold(bool) {}

// Close implements Transport.
func (t *kernelTransport) Close() error {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return nil
	}
	t.ended = true
	file, open := t.file, t.open
	t.file, t.open = nil, nil
	t.mu.Unlock()
	for c := range open {
		_ = c.Close() // its owner may have already closed it
	}
	if file == nil {
		return nil
	}
	return file.Close()
}
