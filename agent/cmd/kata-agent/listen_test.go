package main

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// scripted is a listener that answers Accept from a list.
type scripted struct {
	net.Listener
	answers []any
}

func (s *scripted) Accept() (net.Conn, error) {
	answer := s.answers[0]
	s.answers = s.answers[1:]
	if err, ok := answer.(error); ok {
		return nil, err
	}
	return answer.(net.Conn), nil
}

type from struct {
	net.Conn
	cid    uint32
	closed bool
}

func (f *from) RemoteAddr() net.Addr { return &vsock.Addr{ContextID: f.cid, Port: 9} }
func (f *from) Close() error         { f.closed = true; return nil }

func TestAcceptsTheHostAlone(t *testing.T) {
	inside, host, broken := &from{cid: 3}, &from{cid: unix.VMADDR_CID_HOST}, errors.New("broken")
	l := hostListener{&scripted{answers: []any{
		fmt.Errorf("accept: %w", unix.ECONNABORTED), inside, unix.EMFILE, host, broken,
	}}}
	conn, err := l.Accept()
	if err != nil || conn != net.Conn(host) {
		t.Fatalf("accepted %v, %v", conn, err)
	}
	if !inside.closed || host.closed {
		t.Error("the wrong connection was closed")
	}
	if _, err := l.Accept(); !errors.Is(err, broken) {
		t.Errorf("%v, want what broke the listener", err)
	}
	if fromHost(&net.UnixAddr{}) {
		t.Error("a socket that is no vsock is the host")
	}
}
