package service

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/api/apitest"
	"github.com/katabox/katabox/agent/stream"
)

// The service passes the host's contract test, as the guest of the host's tests
// does.
func TestContract(t *testing.T) {
	apitest.Run(t, func(t *testing.T) apitest.Guest {
		pod, runtime := bareGuest(t)
		pod.config.Tables = fakeTables(t)
		ports := servePorts(t, pod)
		return apitest.Guest{
			Dial: func(ctx context.Context, port uint32) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", ports[port])
			},
			Write: func(_, execID, text string) error {
				_, err := runtime.last.process(execID).stdout.WriteString(text)
				return err
			},
			Exit: func(id, execID string, status uint32) error {
				if runtime.last == nil {
					return fmt.Errorf("no container %s", id)
				}
				runtime.last.process(execID).exit(status)
				return nil
			},
			HoldExec: func() (<-chan struct{}, func()) { return runtime.last.holdExec() },
		}
	})
}

// holdExec has the next Exec close begun, and wait until release is called.
func (c *fakeContainer) holdExec() (begun <-chan struct{}, release func()) {
	began, held := make(chan struct{}), make(chan struct{})
	c.onExec = func() { close(began); <-held }
	return began, func() { close(held) }
}

// process returns the init, or the only exec of such a test.
func (c *fakeContainer) process(execID string) *fakeProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	if execID == "" {
		return c.init
	}
	return c.execs[0]
}

// servePorts serves a pod's calls and streams as the agent does, on sockets by
// port.
func servePorts(t *testing.T, pod *Pod) map[uint32]string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	serve := map[uint32]func(net.Listener) error{
		api.PortRPC: func(l net.Listener) error {
			return Serve(ctx, l, pod, BootTimes{Agent: time.Second, Serving: time.Second}, func() error { return nil })
		},
		api.PortStream: func(l net.Listener) error { return (&stream.Server{Finder: pod}).Serve(ctx, l) },
	}
	ended, ports := make(chan error, len(serve)), map[uint32]string{}
	for port, serve := range serve {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "port"))
		if err != nil {
			t.Fatal(err)
		}
		ports[port] = l.Addr().String()
		go func() { ended <- serve(l) }()
	}
	t.Cleanup(func() {
		cancel()
		for range serve {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return ports
}
