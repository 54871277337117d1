package reverse

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// patience bounds the wait of one step.
const patience = 30 * time.Second

var errInjected = errors.New("injected")

// The process's main thread stays out of the tests' namespaces.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns both ends of a connection to the guest.
func pair(t *testing.T) (host, guestEnd *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "vsock")
		conn, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		ends[i] = conn.(*net.UnixConn)
	}
	_ = ends[1].SetDeadline(time.Now().Add(patience))
	return ends[0], ends[1]
}

// hostile is a guest that the test controls.
type hostile struct {
	t *testing.T
	// opened receives the guest's end of each connection, and its request.
	opened chan opened
	// refuse is the answer to a Take, if not nil.
	refuse error
	// losses are the errors of the first Takes.
	losses chan error
	// takes counts the Takes.
	takes atomic.Int32
}

type opened struct {
	what *api.ReverseOpen
	conn *net.UnixConn
}

func newGuest(t *testing.T) *hostile {
	return &hostile{t: t, opened: make(chan opened, 2*maxConnections)}
}

// open is an Opener.
func (h *hostile) open(_ context.Context, what *api.ReverseOpen) (guest.Conn, error) {
	if _, taken := what.GetWhat().(*api.ReverseOpen_Take); taken {
		h.takes.Add(1)
		select {
		case err := <-h.losses:
			return nil, err
		default:
		}
		if h.refuse != nil {
			return nil, h.refuse
		}
	}
	host, end := pair(h.t)
	h.opened <- opened{what, end}
	return host, nil
}

// next returns the guest's end of the next connection.
func (h *hostile) next() opened {
	h.t.Helper()
	select {
	case o := <-h.opened:
		return o
	case <-time.After(patience):
		h.t.Fatal("no connection came")
		return opened{}
	}
}

// space makes a network namespace with lo up and returns its path.
func space(t *testing.T, in func()) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for its own network namespace")
	}
	ready, end, ended := make(chan error), make(chan struct{}), make(chan struct{})
	var path string
	go func() { // The thread ends with the goroutine, and its namespace with it.
		defer close(ended)
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		path = "/proc/thread-self/ns/net"
		if link, linkErr := os.Readlink("/proc/thread-self"); linkErr == nil {
			path = "/proc/" + link + "/ns/net"
		}
		if err == nil {
			err = loUp()
		}
		if err == nil {
			in()
		}
		ready <- err
		<-end
	}()
	t.Cleanup(func() {
		close(end)
		<-ended
	})
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return path
}

func loUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
