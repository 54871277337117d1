package qmptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Greeting is QEMU 7.2's greeting.
const Greeting = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, ` +
	`"package": "test"}, "capabilities": ["oob"]}}`

// Server is QEMU's side. Its methods may be called from one goroutine, which
// need not be the test's: failures are reported with t.Error.
type Server struct {
	t     testing.TB
	conn  net.Conn
	dec   *json.Decoder
	files []*os.File
}

// Request is a command that the client sent.
type Request struct {
	ID        json.RawMessage `json:"id"`
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	// Files came with the command; the test owns them.
	Files []*os.File `json:"-"`
}

// Refusal is an error answer.
type Refusal struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// Pair makes a connection that can pass files. Both ends are closed when the
// test ends.
func Pair(t testing.TB) (*net.UnixConn, *Server) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "qmptest")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], newServer(t, conns[1])
}

// Pipe makes a connection in memory, for bubbles of testing/synctest. Writes on
// it are synchronous.
func Pipe(t testing.TB) (net.Conn, *Server) {
	client, server := net.Pipe()
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, newServer(t, server)
}

func newServer(t testing.TB, conn net.Conn) *Server {
	s := &Server{t: t, conn: conn}
	s.dec = json.NewDecoder(readerFunc(s.read))
	return s
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// read keeps the files that come with the bytes.
func (s *Server) read(p []byte) (int, error) {
	conn, ok := s.conn.(*net.UnixConn)
	if !ok {
		return s.conn.Read(p)
	}
	oob := make([]byte, unix.CmsgSpace(4*8))
	n, oobn, _, _, err := conn.ReadMsgUnix(p, oob)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	messages, _ := unix.ParseSocketControlMessage(oob[:max(oobn, 0)])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			s.files = append(s.files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return n, err
}

// Send writes all lines with one write.
func (s *Server) Send(lines ...string) {
	if _, err := io.WriteString(s.conn, strings.Join(lines, "\r\n")+"\r\n"); err != nil {
		s.t.Errorf("fake QEMU: send: %v", err)
	}
}

// Next waits for a command.
func (s *Server) Next() Request {
	r, err := s.next()
	if err != nil {
		s.t.Errorf("fake QEMU: await command: %v", err)
	}
	return r
}

func (s *Server) next() (Request, error) {
	var r Request
	err := s.dec.Decode(&r)
	r.Files, s.files = s.files, nil
	return r, err
}

// Handshake greets and answers qmp_capabilities.
func (s *Server) Handshake() {
	s.Send(Greeting)
	r := s.Next()
	if r.Execute != "qmp_capabilities" {
		s.t.Errorf("fake QEMU: the first command is %q", r.Execute)
	}
	s.Send(Reply(r, struct{}{}))
}

// Skim reads the beginning of a command and leaves its rest unread.
func (s *Server) Skim() {
	if _, err := s.read(make([]byte, 16)); err != nil {
		s.t.Errorf("fake QEMU: skim command: %v", err)
	}
}

// Silence is no answer.
type Silence struct{}

// Serve answers commands with handle until the client closes. A handler that
// returns a *Refusal refuses, and one that returns Silence does not answer.
func (s *Server) Serve(handle func(Request) any) {
	for {
		r, err := s.next()
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
			return
		}
		if err != nil {
			s.t.Errorf("fake QEMU: await command: %v", err)
			return
		}
		answer := handle(r)
		if _, silent := answer.(Silence); !silent {
			s.Send(Reply(r, answer))
		}
	}
}

// Close closes QEMU's end.
func (s *Server) Close() { _ = s.conn.Close() }

// Reply is the line that answers a command; a *Refusal as value refuses it.
func Reply(r Request, value any) string {
	key := "return"
	if _, ok := value.(*Refusal); ok {
		key = "error"
	}
	return fmt.Sprintf(`{%q: %s, "id": %s}`, key, marshal(value), r.ID)
}

// Event is the line that announces an event.
func Event(name string, data any) string {
	return fmt.Sprintf(`{"timestamp": {"seconds": 1, "microseconds": 2}, "event": %q, "data": %s}`,
		name, marshal(data))
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		// A test's mistake; the client will report an invalid answer.
		return fmt.Appendf(nil, "%q", "qmptest: "+err.Error())
	}
	return b
}
