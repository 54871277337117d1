package stream

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

type finder map[string]*Stdio

func (f finder) FindStdio(containerID, execID string) (*Stdio, error) {
	s, ok := f[containerID+"/"+execID]
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	return s, nil
}

func startServer(t *testing.T, f Finder) (addr string) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "streams"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- (&Server{Finder: f}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func openStream(t *testing.T, addr string, req *api.StreamOpen) (net.Conn, string) {
	t.Helper()
	conn, err := net.Dial("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if err := api.WriteFrame(conn, req); err != nil {
		t.Fatal(err)
	}
	var opened api.StreamOpened
	if err := api.ReadFrame(conn, &opened); err != nil {
		t.Fatal(err)
	}
	return conn, opened.GetError()
}

func TestServerBinds(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	addr := startServer(t, finder{"c/e": s})
	conn, refusal := openStream(t, addr, &api.StreamOpen{ContainerId: "c", ExecId: "e", Stream: stdout})
	if refusal != "" {
		t.Fatal(refusal)
	}
	_, _ = io.WriteString(s.Child().Stdout, "hello")
	s.Child().Close()
	if got := readAll(t, conn); got != "hello" {
		t.Errorf("%q", got)
	}
}

func TestServerRefuses(t *testing.T) {
	s := newStdio(t, Request{Stdout: true})
	addr := startServer(t, finder{"c/": s})
	tests := []struct {
		req  *api.StreamOpen
		want string
	}{
		{&api.StreamOpen{ContainerId: "x", Stream: stdout}, "not found"},
		{&api.StreamOpen{ContainerId: "c", Stream: stderr}, "was not asked for"},
		{&api.StreamOpen{ContainerId: "c"}, "was not asked for"},
	}
	for _, test := range tests {
		conn, refusal := openStream(t, addr, test.req)
		if !strings.Contains(refusal, test.want) {
			t.Errorf("%v: %q, want %q", test.req, refusal, test.want)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%v: the connection stays open", test.req)
		}
	}
	if _, refusal := openStream(t, addr, &api.StreamOpen{ContainerId: "c", Stream: stdout}); refusal != "" {
		t.Error(refusal)
	}
	if _, refusal := openStream(t, addr, &api.StreamOpen{ContainerId: "c", Stream: stdout}); !strings.Contains(refusal, "is bound") {
		t.Errorf("second: %q", refusal)
	}
}

func TestSilentConnectionIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, guest := net.Pipe()
		defer host.Close()
		began := time.Now()
		if err := (&Server{Finder: finder{}}).open(guest); err == nil {
			t.Error("a silent connection was bound")
		}
		if took := time.Since(began); took != openTimeout {
			t.Errorf("dropped after %v, want %v", took, openTimeout)
		}
		_ = guest.Close()
	})
}
