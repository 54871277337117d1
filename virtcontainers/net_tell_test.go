package virtcontainers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/network"
	"github.com/katabox/katabox/virtcontainers/podnet"
)

// A container's hooks and the watch tell the guest at the same time. The guest
// takes concurrent calls in any order, but the newest state must be the last.
func TestTheNewestNetworkIsToldLast(t *testing.T) {
	a, links := fakeguest.NewAgent(), newNetwork()
	t.Cleanup(a.Die)
	client, err := guest.Connect(t.Context(), a.Dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	p := podnet.New(podnet.Options{
		Spec: podnet.Spec{Namespace: "/run/netns/pod"}, Config: new(config.Config),
		Open: func(network.Options) (podnet.Links, error) { return links, nil },
	})
	if err := p.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Connect(client, func() bool { return false })

	first := make(chan struct{})
	a.Hook("SetNetwork", func(_ context.Context, req proto.Message) error {
		if req.(*api.SetNetworkRequest).GetInterfaces()[0].GetMtu() == 1400 {
			close(first)
			time.Sleep(200 * time.Millisecond) // enough for the second call to pass
		}
		return nil
	})
	var told sync.WaitGroup
	tell := func() {
		if err := p.Tell(t.Context()); err != nil {
			t.Error(err)
		}
	}
	told.Go(tell)
	<-first
	links.setMTU(9000)
	told.Go(tell)
	told.Wait()
	if mtu := a.Network().GetInterfaces()[0].GetMtu(); mtu != 9000 {
		t.Errorf("the guest's MTU is %d, an earlier state's", mtu)
	}
}

// A link that no card can have, which a container's hooks have made, fails the
// container, also if the watch has met it first: it is an error only once.
func TestHooksMakeALinkThatNoCardCanHave(t *testing.T) {
	a, links := fakeguest.NewAgent(), newNetwork()
	t.Cleanup(a.Die)
	client, err := guest.Connect(t.Context(), a.Dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	cfg := new(config.Config)
	cfg.Runtime.CreateContainerTimeout = time.Minute
	p := podnet.New(podnet.Options{
		Spec: podnet.Spec{Namespace: "/run/netns/pod"}, Config: cfg,
		Open: func(network.Options) (podnet.Links, error) { return links, nil },
		Pass: func(context.Context, string) (func(), error) { return func() {}, nil },
	})
	if err := p.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Connect(client, func() bool { return false })
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { p.Watch(ctx, func() []string { return nil }) })
	defer watch.Wait()
	defer cancel()

	before := time.Now()
	links.plugged = 1
	links.plugErr = fmt.Errorf("link eth1: its MTU: %w", errdefs.ErrInvalidArgument)
	links.changed <- struct{}{}
	if err := await(t, "the watch", links.followed); !errdefs.IsInvalidArgument(err) {
		t.Errorf("the watch: %v", err)
	}
	links.plugErr = nil // it is told once
	if err := p.Refresh(t.Context(), before); !errdefs.IsInvalidArgument(err) {
		t.Errorf("the container whose hooks made it: %v", err)
	}
	if err := p.Refresh(t.Context(), time.Now()); err != nil {
		t.Errorf("a later container: %v", err)
	}
}
