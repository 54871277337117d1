package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The answer to the request that ends the server arrives, even if it is the
// connection's first and nothing else is to be waited for.
func TestTheLastAnswerIsSent(t *testing.T) {
	for range 50 {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		server, err := ttrpc.NewServer()
		if err != nil {
			t.Fatal(err)
		}
		owed, end := NewOwed(), make(chan struct{})
		server.RegisterService("S", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
			"End": Method(func(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
				close(end)
				time.Sleep(time.Millisecond) // the server's end overtakes the answer
				return &emptypb.Empty{}, nil
			}),
		}})
		served := make(chan error, 1)
		go func() { served <- server.Serve(t.Context(), owed.Listener(l)) }()
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client := ttrpc.NewClient(conn)
		ended := make(chan error, 1)
		go func() {
			<-end
			ended <- errors.Join(owed.Wait(t.Context()), server.Shutdown(t.Context()))
		}()
		if err := client.Call(t.Context(), "S", "End", &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
			t.Errorf("the last call: %v", err)
		}
		client.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-served
	}
}

func frame(kind byte, payload int) []byte {
	f := make([]byte, headerLen+payload)
	binary.BigEndian.PutUint32(f, uint32(payload))
	f[typeAt] = kind
	return f
}

func TestFramesInPieces(t *testing.T) {
	var stream []byte
	for _, f := range [][]byte{frame(typeRequest, 0), frame(3, 20), frame(typeRequest, 7), frame(typeResponse, 1), frame(typeRequest, 300)} {
		stream = append(stream, f...)
	}
	for piece := 1; piece <= len(stream); piece++ {
		var f frames
		n := 0
		for at := 0; at < len(stream); at += piece {
			n += f.count(stream[at:min(at+piece, len(stream))], typeRequest)
		}
		if n != 3 {
			t.Errorf("in pieces of %d: %d requests, want 3", piece, n)
		}
	}
}

// A client that goes away is owed nothing.
func TestClosedConnection(t *testing.T) {
	near, far := net.Pipe()
	owed := NewOwed()
	owed.conns.add(1)
	c := &countedConn{Conn: near, owed: owed}
	go func() { _, _ = far.Write(frame(typeRequest, 0)) }()
	if _, err := c.Read(make([]byte, headerLen)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := owed.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with one request: %v", err)
	}
	c.Close()
	far.Close()
	if err := owed.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// pipes is a listener to which the test's clients are given.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (pipes) Close() error                { return nil }
func (pipes) Addr() net.Addr              { return nil }

// The time alone begins when the last client leaves, and again with each.
func TestWhenAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		var alone atomic.Int32
		owed, clients := NewOwed(), make(pipes, 1)
		listener := owed.Listener(clients)
		connect := func() (disconnect func()) {
			near, far := net.Pipe()
			clients <- near
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return func() { conn.Close(); far.Close() }
		}
		check := func(after time.Duration, want int32) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := alone.Load(); got != want {
				t.Errorf("%d calls, want %d", got, want)
			}
		}
		stop := owed.WhenAlone(limit, func() { alone.Add(1) })
		check(limit-time.Second, 0)
		first := connect()
		check(time.Hour, 0)
		second := connect()
		first()
		check(time.Hour, 0)
		second()
		check(limit-time.Second, 0)
		check(time.Second, 1)
		check(time.Hour, 1)
		connect()()
		check(limit, 2)
		third := connect()
		stop()
		third()
		check(time.Hour, 2)
		fourth := connect()
		stop = owed.WhenAlone(limit, func() { alone.Add(1) })
		check(time.Hour, 2)
		fourth()
		check(limit, 3)
		stop()
	})
}
