package reverse

import (
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

// markedPair is a client's connection, and the host's with its ends marked.
func markedPair(t *testing.T) (client *net.TCPConn, server relay.HalfCloser) {
	t.Helper()
	h, address := newHost(t), freeAddress(t, "tcp")
	control := h.mustOpen(listenTCP(address))
	client = dial(t, "tcp", address).(*net.TCPConn)
	var incoming api.Incoming
	if err := api.ReadFrame(control, &incoming); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	open := take(incoming.GetConnection())
	open.Marked = true
	var opened api.ReverseOpened
	if err := errors.Join(api.WriteFrame(conn, open), api.ReadFrame(conn, &opened)); err != nil || !opened.GetMarked() {
		t.Fatalf("%v, %v, want marked ends", &opened, err)
	}
	return client, relay.Mark(conn.(*net.UnixConn))
}

// Resets of either side reach the other.
func TestMarkedResets(t *testing.T) {
	client, server := markedPair(t)
	_, _ = io.WriteString(client, "half a quest")
	_ = client.SetLinger(0)
	_ = client.Close()
	if got, err := io.ReadAll(server); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server reads %q, %v, want a reset", got, err)
	}
	client, server = markedPair(t)
	_, _ = io.WriteString(server, "half an ans")
	if _, err := io.ReadFull(client, make([]byte, len("half an ans"))); err != nil {
		t.Error(err)
	}
	_ = server.Close()
	if got, err := io.ReadAll(client); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client reads %q, %v, want a reset", got, err)
	}
}

// So do orderly ends.
func TestMarkedEnds(t *testing.T) {
	client, server := markedPair(t)
	_, err := io.WriteString(client, "question")
	if err := errors.Join(err, client.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(server); err != nil || string(got) != "question" {
		t.Errorf("the server reads %q, %v", got, err)
	}
	_, err = io.WriteString(server, "answer")
	if err := errors.Join(err, server.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Errorf("the client reads %q, %v", got, err)
	}
}
