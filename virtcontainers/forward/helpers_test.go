package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// patience bounds the wait for what must happen, even on a slow machine.
const patience = 30 * time.Second

// outside is an address of every test namespace that is not loopback.
const outside = "10.9.8.7"

// The process's main thread must not enter a test's namespace: /proc shows its
// namespace as the process's.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		os.Exit(child(path))
	}
	goleak.VerifyTestMain(m)
}

// space is a network namespace, with a thread that stays in it.
type space struct {
	path string
	jobs chan func()
}

// newSpace returns a namespace with lo up.
func newSpace(t *testing.T) *space {
	t.Helper()
	s := newBareSpace(t)
	s.loUp(t)
	return s
}

// newBareSpace returns a namespace as the kernel makes it.
func newBareSpace(t *testing.T) *space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for its own network namespace")
	}
	s := &space{jobs: make(chan func())}
	ready, ended := make(chan error), make(chan struct{})
	go func() { // The thread ends with the goroutine, and its namespace with it.
		defer close(ended)
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		s.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		ready <- err
		for job := range s.jobs {
			job()
		}
	}()
	t.Cleanup(func() {
		close(s.jobs)
		<-ended
	})
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return s
}

// in calls f on the namespace's thread.
func (s *space) in(f func()) {
	done := make(chan struct{})
	s.jobs <- func() {
		defer close(done)
		f()
	}
	<-done
}

// loUp brings lo up and gives it the outside address as well.
func (s *space) loUp(t *testing.T) {
	t.Helper()
	s.in(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		lo, _ := unix.NewIfreq("lo")
		lo.SetUint16(unix.IFF_UP)
		alias, _ := unix.NewIfreq("lo:1")
		_ = alias.SetInet4Addr(net.ParseIP(outside).To4())
		if err := errors.Join(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo), unix.IoctlIfreq(fd, unix.SIOCSIFADDR, alias)); err != nil {
			t.Error(err)
		}
	})
}

// connect connects from inside the namespace.
func (s *space) connect(t *testing.T, address string) (*net.TCPConn, error) {
	t.Helper()
	var conn net.Conn
	var err error
	s.in(func() { conn, err = net.DialTimeout("tcp", address, patience) })
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn), conn.SetDeadline(time.Now().Add(patience))
}

// mustConnect connects from inside the namespace, which must work.
func (s *space) mustConnect(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := s.connect(t, address)
	if err != nil {
		t.Fatalf("connect to %s: %v", address, err)
	}
	return conn
}

// wantRefused connects from inside the namespace, which must not work.
func (s *space) wantRefused(t *testing.T, address string) {
	t.Helper()
	if _, err := s.connect(t, address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to %s: %v, want it refused", address, err)
	}
}

// forwarder opens a Forwarder for the namespace.
func (s *space) forwarder(t *testing.T, dial DialFunc) *Forwarder {
	t.Helper()
	f, err := Open(t.Context(), s.path, dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// serving returns a DialFunc that connects to handle, which stands for the
// server in the guest. Each begins with a line that says which address was
// dialled.
func serving(t *testing.T, handle func(conn *net.UnixConn)) DialFunc {
	t.Helper()
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	return func(_ context.Context, address string) (guest.Conn, error) {
		host, far, err := pipe()
		if err != nil {
			return nil, err
		}
		running.Go(func() {
			defer far.Close()
			fmt.Fprintln(far, address)
			handle(far)
		})
		return host, nil
	}
}

// pipe returns both ends of a connection.
func pipe() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pipe")
		conn, err := net.FileConn(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, nil, err
		}
		ends[i] = conn.(*net.UnixConn)
		_ = ends[i].SetDeadline(time.Now().Add(patience))
	}
	return ends[0], ends[1], nil
}

// echo sends back what it receives, until the end of file.
func echo(conn *net.UnixConn) { _, _ = io.Copy(conn, conn) }

// greeting reads the line that says which address was dialled.
func greeting(t *testing.T, conn net.Conn) string {
	t.Helper()
	line, err := bufio.NewReaderSize(oneByte{conn}, 16).ReadString('\n')
	if err != nil {
		t.Errorf("read greeting: %v", err)
	}
	return strings.TrimSpace(line)
}

// oneByte reads one byte at a time, so never more than needed.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

// wantReset reads until the connection ends, which must be by a reset.
func wantReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
}

// receive waits for what must come.
func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Error("it did not come in time")
	}
	return got
}
