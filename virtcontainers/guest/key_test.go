package guest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// door is the ports of a guest: what each does with a connection. One that is
// missing does not listen.
type door map[uint32]func(conn net.Conn)

func (d door) dial(_ context.Context, port uint32) (guest.Conn, error) {
	serve := d[port]
	if serve == nil {
		return nil, syscall.ECONNREFUSED
	}
	host, ours := net.Pipe()
	go serve(ours)
	return pipeConn{host}, nil
}

// never fails a test that dials.
func never(t *testing.T) guest.DialFunc {
	return func(_ context.Context, port uint32) (guest.Conn, error) {
		t.Errorf("port %d was dialled", port)
		return nil, syscall.ECONNREFUSED
	}
}

// answering answers a key.
func answering(keys chan<- api.Key, answer ...byte) func(net.Conn) {
	return func(conn net.Conn) {
		defer conn.Close()
		var key api.Key
		if _, err := io.ReadFull(conn, key[:]); err == nil {
			keys <- key
			_, _ = conn.Write(answer)
		}
	}
}

func TestKeyIsShown(t *testing.T) {
	keys := make(chan api.Key, 10)
	read := func(conn net.Conn) {
		var key api.Key
		_, _ = io.ReadFull(conn, key[:])
		keys <- key
		_, _ = io.Copy(conn, conn)
	}
	reserved := door{api.PortKey: answering(keys, api.KeyTaken)}
	dial := guest.WithKey(door{api.PortRPC: read, api.PortStream: read}.dial, reserved.dial)
	var shown []api.Key
	for _, port := range []uint32{api.PortRPC, api.PortStream, api.PortRPC} {
		conn, err := dial(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "x")
		if b, err := io.ReadAll(io.LimitReader(conn, 1)); string(b) != "x" || err != nil {
			t.Errorf("port %d: after the key came %q, %v", port, b, err)
		}
		_ = conn.Close()
	}
	for range 5 { // three connections, two of which were preceded by an offer
		shown = append(shown, <-keys)
	}
	for _, key := range shown {
		if key != shown[0] || key == (api.Key{}) {
			t.Errorf("the keys %x differ, or are empty", shown)
		}
	}
	other := guest.WithKey(door{}.dial, reserved.dial)
	if _, err := other(t.Context(), api.PortRPC); !errors.Is(err, syscall.ECONNREFUSED) || <-keys == shown[0] {
		t.Errorf("%v; or two machines have the same key", err)
	}
}

func TestKeyIsRefused(t *testing.T) {
	for answer, want := range map[string]string{
		string([]byte{api.KeyRefused}): "another process of this host",
		"\x00":                         "it answered 0",
		"":                             "EOF",
	} {
		keys := make(chan api.Key, 1)
		dial := guest.WithKey(never(t), door{api.PortKey: answering(keys, []byte(answer)...)}.dial)
		conn, err := dial(t.Context(), api.PortRPC)
		if conn != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answer %q: %v, %v, want %q", answer, conn, err, want)
		}
	}
}

// A guest that neither reads a key nor answers holds a connection for a minute, or
// as long as its caller waits.
func TestKeyIsNotAnswered(t *testing.T) {
	for name, hang := range map[string]func(net.Conn){
		"reads nothing":   func(net.Conn) {},
		"answers nothing": func(conn net.Conn) { _, _ = io.ReadFull(conn, make([]byte, api.KeyBytes)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			ports := door{api.PortKey: hang, api.PortStream: func(net.Conn) {}}
			dial := guest.WithKey(ports.dial, ports.dial)
			for _, port := range []uint32{api.PortRPC, api.PortStream} {
				asked := time.Now()
				if _, err := dial(t.Context(), port); !errors.Is(err, context.DeadlineExceeded) || time.Since(asked) != time.Minute {
					t.Errorf("%s: port %d: %v after %v", name, port, err, time.Since(asked))
				}
				ended := errors.New("the machine ended")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ended)
				if _, err := dial(ctx, port); !errors.Is(err, ended) {
					t.Errorf("%s: port %d: %v, want the reason of its end", name, port, err)
				}
				cancel()
			}
		})
	}
}

// While the agent does not listen an offer is refused as any connection is; one that
// only serves calls will never take it.
func TestAgentWithoutKeys(t *testing.T) {
	starts := door{}
	dial := guest.WithKey(starts.dial, starts.dial)
	for i := range 100 {
		if _, err := dial(t.Context(), api.PortRPC); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("try %d of an agent that starts: %v", i, err)
		}
	}
	keyless := newUnplugged(t)
	served := door{api.PortRPC: func(conn net.Conn) { keyless.rpcs <- conn }}
	dial = guest.WithKey(served.dial, served.dial)
	for try := range 100 {
		_, err := dial(t.Context(), api.PortRPC)
		if err != nil && strings.Contains(err.Error(), "older release") {
			return
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("try %d: %v", try, err)
		}
	}
	t.Error("an agent that takes no keys is not found out")
}

// An agent that takes keys is not taken for one that does not while other processes
// of the host fill the queue of its port; the key reaches it after that.
func TestKeyPortIsFlooded(t *testing.T) {
	for name, unknown := range map[string]func(net.Conn){
		"closes connections with another key": func(conn net.Conn) {
			_, _ = io.ReadFull(conn, make([]byte, api.KeyBytes))
			_ = conn.Close()
		},
		"is slow": func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ports := door{api.PortRPC: unknown}
				dial, began := guest.WithKey(ports.dial, ports.dial), time.Now()
				for time.Since(began) < 10*time.Second {
					if _, err := dial(t.Context(), api.PortRPC); !errors.Is(err, syscall.ECONNREFUSED) {
						t.Fatalf("%v after %v", err, time.Since(began))
					}
					time.Sleep(5 * time.Millisecond)
				}
				ports[api.PortKey] = answering(make(chan api.Key, 1), api.KeyTaken)
				ports[api.PortRPC] = func(conn net.Conn) { _, _ = io.ReadFull(conn, make([]byte, api.KeyBytes)) }
				conn, err := dial(t.Context(), api.PortRPC)
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			})
		})
	}
}
