package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/internal/fdtest"
	"github.com/katabox/katabox/virtcontainers/guest"
)

var errInjected = errors.New("injected")

// The client ends first, and still gets the answer; then the other way round.
func TestHalfClose(t *testing.T) {
	s := newSpace(t)
	got := make(chan string, 1)
	s.forwarder(t, serving(t, func(c *net.UnixConn) {
		all, err := io.ReadAll(c)
		got <- fmt.Sprint(string(all), err)
		_, _ = io.WriteString(c, "answer")
	}))
	conn := s.mustConnect(t, "127.0.0.1:80")
	greeting(t, conn)
	_, _ = io.WriteString(conn, "question")
	if err := conn.CloseWrite(); err != nil {
		t.Error(err)
	}
	if asked := receive(t, got); asked != "question<nil>" {
		t.Errorf("the guest got %q", asked)
	}
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "answer" {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestHalfCloseByGuest(t *testing.T) {
	s := newSpace(t)
	got := make(chan string, 1)
	s.forwarder(t, serving(t, func(c *net.UnixConn) {
		_ = c.CloseWrite()
		all, err := io.ReadAll(c)
		got <- fmt.Sprint(string(all), err)
	}))
	conn := s.mustConnect(t, "127.0.0.1:80")
	if said, err := io.ReadAll(conn); err != nil || string(said) != "127.0.0.1:80\n" {
		t.Errorf("got %q, %v", said, err)
	}
	_, _ = io.WriteString(conn, "late")
	if err := conn.CloseWrite(); err != nil {
		t.Error(err)
	}
	if heard := receive(t, got); heard != "late<nil>" {
		t.Errorf("the guest got %q", heard)
	}
}

// The answer of a server arrives even if it stops reading before it got the
// whole request.
func TestEarlyAnswer(t *testing.T) {
	s := newSpace(t)
	stopped := make(chan struct{})
	release := make(chan struct{})
	s.forwarder(t, serving(t, func(c *net.UnixConn) {
		_ = c.CloseRead()
		close(stopped)
		<-release
		_, _ = io.WriteString(c, "answer")
	}))
	conn := s.mustConnect(t, "127.0.0.1:80")
	receive(t, stopped)
	_, _ = io.WriteString(conn, "more")
	greeting(t, conn)
	close(release)
	answer := make([]byte, len("answer"))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "answer" {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestRefusedByGuest(t *testing.T) {
	s := newSpace(t)
	var mu sync.Mutex
	var dialled []string
	s.forwarder(t, func(ctx context.Context, address string) (guest.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		dialled = append(dialled, address)
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the dial is not bounded")
		}
		return nil, errInjected
	})
	for _, address := range []string{"127.0.0.1:80", "127.1.2.3:81", "[::1]:82"} {
		// The reset may come before the connect returns.
		if conn, err := s.connect(t, address); err == nil {
			wantReset(t, conn)
		} else if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connect to %s: %v", address, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(dialled)
	// localhost has two addresses.
	if want := []string{"127.0.0.1:80", "127.1.2.3:81", "[::1]:80", "[::1]:82"}; !slices.Equal(dialled, want) {
		t.Errorf("dialled %v, want %v", dialled, want)
	}
}

// A server in the guest that listens on ::1 only is reached by clients that try
// 127.0.0.1 first.
func TestLocalhostIsBoth(t *testing.T) {
	s := newSpace(t)
	dial := serving(t, echo)
	s.forwarder(t, func(ctx context.Context, address string) (guest.Conn, error) {
		if address != "[::1]:80" {
			return nil, errInjected
		}
		return dial(ctx, address)
	})
	if got := greeting(t, s.mustConnect(t, "127.0.0.1:80")); got != "[::1]:80" {
		t.Errorf("dialled %s", got)
	}
}

func TestTooMany(t *testing.T) {
	s := newSpace(t)
	f := s.forwarder(t, serving(t, echo))
	var held []*net.TCPConn
	for range maxConnections {
		conn := s.mustConnect(t, "127.0.0.1:80")
		greeting(t, conn)
		held = append(held, conn)
	}
	conn, err := s.connect(t, "127.0.0.1:80")
	if err == nil {
		wantReset(t, conn)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("one too many: %v", err)
	}
	// A connection that ends makes room: its slot is free once it was received
	// from f.
	_ = held[0].CloseWrite()
	_, _ = io.Copy(io.Discard, held[0])
	select {
	case f.slots <- struct{}{}:
		<-f.slots
	case <-time.After(patience):
		t.Fatal("the connection that ended keeps its place")
	}
	if got := greeting(t, s.mustConnect(t, "127.0.0.1:80")); got != "127.0.0.1:80" {
		t.Errorf("dialled %s", got)
	}
}

// When one side's connection breaks, the other side's is reset.
func TestClientDies(t *testing.T) {
	for _, halfClosed := range []bool{false, true} {
		t.Run(fmt.Sprintf("half-closed %v", halfClosed), func(t *testing.T) {
			s := newSpace(t)
			heard, ended := make(chan struct{}), make(chan error, 1)
			s.forwarder(t, serving(t, func(c *net.UnixConn) {
				_, err := io.Copy(io.Discard, c)
				close(heard)
				for err == nil { // nothing is read any more: a write shows the end
					_, err = c.Write([]byte("still here"))
				}
				ended <- err
			}))
			conn := s.mustConnect(t, "127.0.0.1:80")
			greeting(t, conn)
			if halfClosed {
				_ = conn.CloseWrite()
				receive(t, heard)
			}
			reset(conn)
			if err := receive(t, ended); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the guest's end: %v", err)
			}
		})
	}
}

// A dead client is noticed while both sides are silent.
func TestClientDiesInSilence(t *testing.T) {
	s := newSpace(t)
	heard, ended := make(chan struct{}), make(chan struct{})
	dial := serving(t, echo)
	s.forwarder(t, func(ctx context.Context, address string) (guest.Conn, error) {
		conn, err := dial(ctx, address)
		return &silent{Conn: conn, heard: heard, ended: ended}, err
	})
	conn := s.mustConnect(t, "127.0.0.1:80")
	_ = conn.CloseWrite()
	receive(t, heard)
	reset(conn)
	receive(t, ended)
}

// silent is a connection to a guest that sends nothing.
type silent struct {
	guest.Conn
	heard, ended chan struct{}
	once         sync.Once
}

func (s *silent) Read([]byte) (int, error) {
	<-s.ended
	return 0, net.ErrClosed
}

func (s *silent) CloseWrite() error {
	close(s.heard)
	return s.Conn.CloseWrite()
}

func (s *silent) Close() error {
	s.once.Do(func() { close(s.ended) })
	return s.Conn.Close()
}

func TestGuestDies(t *testing.T) {
	s := newSpace(t)
	s.forwarder(t, func(_ context.Context, address string) (guest.Conn, error) {
		conn, far, err := pipe()
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(far, address)
		return &dying{Conn: conn, far: far}, nil
	})
	conn := s.mustConnect(t, "127.0.0.1:80")
	greeting(t, conn)
	_, _ = io.WriteString(conn, "x")
	wantReset(t, conn)
}

// dying is a connection to a guest that dies at the first byte it gets.
type dying struct {
	guest.Conn
	far *net.UnixConn
}

func (d *dying) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = syscall.ECONNRESET
	}
	return n, err
}

func (d *dying) Write(p []byte) (int, error) {
	_ = d.far.Close()
	return d.Conn.Write(p)
}

func TestClose(t *testing.T) {
	s := newSpace(t)
	dial, hanging := serving(t, echo), make(chan struct{})
	f := s.forwarder(t, func(ctx context.Context, address string) (guest.Conn, error) {
		if address == "127.0.0.1:81" {
			close(hanging)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return dial(ctx, address)
	})
	idle := s.mustConnect(t, "127.0.0.1:80")
	greeting(t, idle)
	half := s.mustConnect(t, "127.0.0.1:80")
	greeting(t, half)
	dialling := s.mustConnect(t, "127.0.0.1:81")
	receive(t, hanging)
	var closing sync.WaitGroup
	for range 2 {
		closing.Go(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	closing.Wait()
	for _, conn := range []*net.TCPConn{idle, half, dialling} {
		wantReset(t, conn)
	}
	for _, address := range []string{"127.0.0.1:80", "127.0.0.1:65535", "127.1.2.3:9", "[::1]:80"} {
		s.wantRefused(t, address)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	s.forwarder(t, dial)
	greeting(t, s.mustConnect(t, "127.0.0.1:80"))
}

// Close and a failed Open close every descriptor.
func TestDescriptors(t *testing.T) {
	s := newSpace(t)
	use := func(t *testing.T) {
		s.forwarder(t, serving(t, echo))
		greeting(t, s.mustConnect(t, "127.0.0.1:80"))
		if _, err := Open(t.Context(), "/proc/self/ns/net", nil); err == nil {
			t.Error("the process's own namespace was taken")
		}
		if _, err := Open(t.Context(), "/proc/self/ns/uts", nil); err == nil {
			t.Error("a namespace of another kind was taken")
		}
	}
	t.Run("first", use) // so that the process's one-time descriptors, such as the poller's, exist
	before := fdtest.Open(t)
	for range 3 {
		t.Run("again", use)
	}
	if diff := cmp.Diff(before, fdtest.Open(t)); diff != "" {
		t.Errorf("descriptors: %s", diff)
	}
}

// childEnv makes the test's program open a Forwarder and wait for its death.
const childEnv = "KATABOX_FORWARD_CHILD"

func child(path string) int {
	f, err := Open(context.Background(), path, func(context.Context, string) (guest.Conn, error) { return nil, errInjected })
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer f.Close()
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// SIGKILL leaves nothing in the namespace.
func TestKilled(t *testing.T) {
	s := newSpace(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+s.path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "up\n" {
		t.Errorf("the child says %q, %v", line, err)
	} else if conn, err := s.connect(t, "127.0.0.1:80"); err == nil {
		wantReset(t, conn)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s.wantRefused(t, "127.0.0.1:80")
	s.wantRefused(t, "[::1]:80")
}
