package rpc

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
)

// lacking is a listener whose first accepts fail, as package net would report it.
type lacking struct {
	net.Listener
	errnos []unix.Errno
}

func (l *lacking) Accept() (net.Conn, error) {
	if len(l.errnos) == 0 {
		return l.Listener.Accept()
	}
	errno := l.errnos[0]
	l.errnos = l.errnos[1:]
	return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", errno)}
}

// A lack of descriptors or memory while a client connects does not end the server: its
// end would be the pod's.
func TestServerOutlastsALack(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	server.RegisterService("S", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"M": Method(func(context.Context, *emptypb.Empty) (*emptypb.Empty, error) { return &emptypb.Empty{}, nil }),
	}})
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(t.Context(), NewOwed().Listener(&lacking{l, []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS}}))
	}()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	called := make(chan error, 1)
	go func() { called <- client.Call(t.Context(), "S", "M", &emptypb.Empty{}, &emptypb.Empty{}) }()
	select {
	case err = <-called:
	case err = <-served:
		t.Fatalf("the server ended: %v", err)
	}
	if err := errors.Join(err, client.Close(), server.Close()); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, ttrpc.ErrServerClosed) {
		t.Error(err)
	}
}
