package virtcontainers_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/ownthread"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/network"
	"github.com/katabox/katabox/virtcontainers/podnet"
)

// resolverSpace returns the path of a network namespace in which a resolver listens.
func resolverSpace(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for its own network namespace")
	}
	ready, end, ended := make(chan error), make(chan struct{}), make(chan struct{})
	var path string
	ownthread.Go(func() { // the namespace ends with it
		defer close(ended)
		err := unix.Unshare(unix.CLONE_NEWNET)
		path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		var l net.PacketConn
		if err == nil {
			if l, err = net.ListenPacket("udp4", ":53"); err == nil {
				defer l.Close()
			}
		}
		ready <- err
		<-end
	})
	t.Cleanup(func() {
		close(end)
		<-ended
	})
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return path
}

// The end of the forwarding gives up a resolver that is being opened, in a guest that
// does not answer: it comes before the end of the machine.
func TestStopForwardWhileAResolverIsOpened(t *testing.T) {
	a := fakeguest.NewAgent()
	t.Cleanup(a.Die)
	asked := make(chan struct{})
	client, err := guest.Connect(t.Context(), func(ctx context.Context, port uint32) (guest.Conn, error) {
		if port != api.PortReverse {
			return a.Dial(ctx, port)
		}
		close(asked)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	p := podnet.New(podnet.Options{
		Spec: podnet.Spec{Namespace: resolverSpace(t)}, Config: &config.Config{Agent: config.Agent{DialTimeout: time.Hour}},
		Open: func(network.Options) (podnet.Links, error) { return nil, nil },
	})
	if err := p.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Connect(client, func() bool { return false })
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.11\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(opened)
		p.OpenResolvers(t.Context(), resolv)
	}()
	await(t, "the question to the guest", asked)
	go func() { stopped <- p.StopForward(t.Context()) }()
	if err := await(t, "the end of the forwarding", stopped); err != nil {
		t.Error(err)
	}
	await(t, "the end of the opening", opened)
}
