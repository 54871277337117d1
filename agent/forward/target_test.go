package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay/relaytest"
)

// sockets finds those of a container "c1", whose paths are this process's.
type sockets struct{}

func (sockets) DialSocket(ctx context.Context, containerID, path string, kind int) (*net.UnixConn, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		return nil, fmt.Errorf("dialled without a limit")
	}
	if containerID != "c1" {
		return nil, fmt.Errorf("container %s: not found", containerID)
	}
	if path == "/hangs" { // its server accepts nothing
		<-ctx.Done()
		return nil, ctx.Err()
	}
	network := "unix"
	if kind == unix.SOCK_SEQPACKET {
		network = "unixpacket"
	}
	return net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
}

// forwarded connects the host to a server's socket in a container, and returns
// both ends.
func forwarded(t *testing.T, network string, to func(*api.ContainerSocket) *api.ForwardOpen) (host, server *net.UnixConn) {
	t.Helper()
	addr, _ := start(t)
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: network})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, refusal := ask(t, addr, to(&api.ContainerSocket{ContainerId: "c1", Path: l.Addr().String()}))
	if refusal != "" {
		t.Fatal(refusal)
	}
	if server, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	_ = server.SetDeadline(time.Now().Add(waitTime))
	return host, server
}

// Servers that accept nothing delay no connection to another.
func TestServersThatHang(t *testing.T) {
	addr, _ := start(t)
	for range maxOpening + 1 {
		hangs := &api.ForwardOpen{Unix: &api.ContainerSocket{ContainerId: "c1", Path: "/hangs"}}
		if err := api.WriteFrame(relaytest.Connect(t, addr, waitTime), hangs); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if _, refusal := open(t, addr, "127.0.0.1:1"); refusal == "" || time.Since(began) > dialTimeout/2 {
		t.Errorf("%q after %v", refusal, time.Since(began))
	}
}

func TestUnixSocket(t *testing.T) {
	host, server := forwarded(t, "unix", func(s *api.ContainerSocket) *api.ForwardOpen { return &api.ForwardOpen{Unix: s} })
	write(t, host, "request")
	_ = host.CloseWrite()
	relaytest.WantAll(t, server, "request")
	write(t, server, "answer")
	_ = server.Close()
	relaytest.WantAll(t, host, "answer")
}

// Messages from and to a SOCK_SEQPACKET socket are each preceded by their
// length.
func TestUnixSocketOfMessages(t *testing.T) {
	host, server := forwarded(t, "unixpacket", func(s *api.ContainerSocket) *api.ForwardOpen { return &api.ForwardOpen{Unixpacket: s} })
	write(t, host, "\x00\x00\x00\x03one\x00\x00\x00\x03two")
	_ = host.CloseWrite()
	buf := make([]byte, 100)
	for _, want := range []string{"one", "two", ""} {
		if n, err := server.Read(buf); string(buf[:n]) != want || err != nil && (want != "" || !errors.Is(err, io.EOF)) {
			t.Errorf("the server reads %q, %v, want %q", buf[:n], err, want)
		}
	}
	write(t, server, "answer")
	write(t, server, "s")
	_ = server.Close()
	relaytest.WantAll(t, host, "\x00\x00\x00\x06answer\x00\x00\x00\x01s")
}

func TestUnixSocketRefuses(t *testing.T) {
	addr, _ := start(t)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for name, tt := range map[string]struct {
		open *api.ForwardOpen
		want string
	}{
		"no listener":  {&api.ForwardOpen{Unix: &api.ContainerSocket{ContainerId: "c1", Path: nowhere}}, "no such file"},
		"no container": {&api.ForwardOpen{Unix: &api.ContainerSocket{ContainerId: "c2", Path: nowhere}}, "not found"},
		"no path":      {&api.ForwardOpen{Unix: &api.ContainerSocket{ContainerId: "c1"}}, "want an absolute path"},
		"relative":     {&api.ForwardOpen{Unix: &api.ContainerSocket{ContainerId: "c1", Path: "run/x"}}, "want an absolute path"},
		"too long":     {&api.ForwardOpen{Unix: &api.ContainerSocket{ContainerId: "c1", Path: "/" + strings.Repeat("x", maxPath)}}, "want an absolute path"},
		"no listener for messages": {
			&api.ForwardOpen{Unixpacket: &api.ContainerSocket{ContainerId: "c1", Path: nowhere}}, "no such file",
		},
		"no path for messages": {&api.ForwardOpen{Unixpacket: &api.ContainerSocket{ContainerId: "c1"}}, "want an absolute path"},
		"both types": {&api.ForwardOpen{
			Unix:       &api.ContainerSocket{ContainerId: "c1", Path: nowhere},
			Unixpacket: &api.ContainerSocket{ContainerId: "c1", Path: nowhere},
		}, "want an address and a port"},
		"an address and messages": {
			&api.ForwardOpen{Address: "127.0.0.1:80", Unixpacket: &api.ContainerSocket{ContainerId: "c1", Path: nowhere}}, "want an address and a port",
		},
		"nothing": {&api.ForwardOpen{}, "want an address and a port"},
		"both":    {&api.ForwardOpen{Address: "127.0.0.1:80", Unix: &api.ContainerSocket{ContainerId: "c1", Path: nowhere}}, "want an address and a port"},
	} {
		conn, refusal := ask(t, addr, tt.open)
		if !strings.Contains(refusal, tt.want) {
			t.Errorf("%s: %q, want %q", name, refusal, tt.want)
		}
		relaytest.WantAll(t, conn, "")
	}
}
