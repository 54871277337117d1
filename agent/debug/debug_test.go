package debug

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/katabox/katabox/agent/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is Children that must be told of each process.
type counted struct{ began, done chan int }

func (c counted) Begin() func(int) { return func(pid int) { c.began <- pid } }
func (c counted) Done(pid int)     { c.done <- pid }

// serve serves and returns a function that opens a process.
func serve(t *testing.T) (func(*api.DebugOpen) (net.Conn, string), counted) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	children := counted{make(chan int, 9), make(chan int, 9)}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- (&Server{Children: children}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func(open *api.DebugOpen) (net.Conn, string) {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		var opened api.DebugOpened
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := api.WriteFrame(conn, open); err != nil {
			t.Fatal(err)
		}
		if err := api.ReadFrame(conn, &opened); err != nil {
			t.Fatal(err)
		}
		return conn, opened.GetError()
	}, children
}

func send(t *testing.T, conn net.Conn, in *api.DebugInput) {
	t.Helper()
	if err := api.WriteFrame(conn, in); err != nil {
		t.Error(err)
	}
}

// finish reads to the process's end.
func finish(t *testing.T, conn net.Conn) (string, uint32) {
	t.Helper()
	var text strings.Builder
	for {
		var out api.DebugOutput
		if err := api.ReadFrame(conn, &out); err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
		text.Write(out.GetData())
		if out.GetExited() {
			return text.String(), out.GetStatus()
		}
	}
}

func TestCommand(t *testing.T) {
	open, children := serve(t)
	conn, refused := open(&api.DebugOpen{Args: []string{"sh", "-c", "cat; echo $TERM >&2; tty; exit 7"}, Term: "vt100"})
	if refused != "" {
		t.Fatal(refused)
	}
	large := strings.Repeat("0123456789\n", 1<<10)
	go func() {
		for rest := large; rest != ""; {
			n := min(len(rest), api.MaxDebugData)
			_ = api.WriteFrame(conn, &api.DebugInput{Data: []byte(rest[:n])})
			rest = rest[n:]
		}
		_ = api.WriteFrame(conn, &api.DebugInput{End: true})
	}()
	if out, status := finish(t, conn); out != large+"vt100\nnot a tty\n" || status != 7 {
		t.Errorf("status %d, %d bytes: %.40q", status, len(out), out)
	}
	if pid := <-children.began; pid != <-children.done {
		t.Errorf("process %d was started, another waited for", pid)
	}
}

func TestTerminal(t *testing.T) {
	open, _ := serve(t)
	conn, refused := open(&api.DebugOpen{Args: []string{"sh"}, Terminal: true, Rows: 7, Columns: 70})
	if refused != "" {
		t.Fatal(refused)
	}
	send(t, conn, &api.DebugInput{Data: []byte("stty size; read x; stty size; (sleep 100 & exit); kill -9 $$\n")})
	send(t, conn, &api.DebugInput{Rows: 8, Columns: 1 << 31})
	send(t, conn, &api.DebugInput{Data: []byte("go on\n"), End: true})
	out, status := finish(t, conn)
	if status != 128+9 || !strings.Contains(out, "8 65535") {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestRefused(t *testing.T) {
	open, children := serve(t)
	if _, refused := open(&api.DebugOpen{Args: []string{"/none/such"}}); !strings.Contains(refused, `start "/none/such"`) {
		t.Errorf("refused: %q", refused)
	}
	if pid := <-children.began; pid != 0 {
		t.Errorf("process %d", pid)
	}
}

// A connection's end, and the server's, kill the process and its children.
func TestConnectionEnds(t *testing.T) {
	open, children := serve(t)
	for range 2 {
		conn, refused := open(&api.DebugOpen{Args: []string{"sh", "-c", "sleep 1000 | sleep 1000"}})
		if refused != "" {
			t.Fatal(refused)
		}
		_ = conn.Close()
		<-children.done
	}
	if _, refused := open(&api.DebugOpen{Args: []string{"sleep", "1000"}}); refused != "" {
		t.Error(refused)
	}
}

// A process that does not read its input, and a child that has left its group,
// do not outlive the connection's use of them.
func TestConnectionEndsUnread(t *testing.T) {
	for _, script := range []string{"sleep 1000", "setsid sleep 5"} {
		open, children := serve(t)
		conn, refused := open(&api.DebugOpen{Args: []string{"sh", "-c", script}})
		if refused != "" {
			t.Fatal(refused)
		}
		for range (80 << 10) / api.MaxDebugData { // more than a pipe holds
			send(t, conn, &api.DebugInput{Data: make([]byte, api.MaxDebugData)})
		}
		_ = conn.Close()
		select {
		case <-children.done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the process runs on", script)
		}
	}
}
