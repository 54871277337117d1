package virtcontainers_test

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

// Without KVM kill_timeout counts six times: also one of so many seconds that a
// time.Duration has no room for the product.
func TestVeryLongKillTimeout(t *testing.T) {
	t.Parallel() // it waits
	p := &pod{t: t, host: newHost(t), observer: newObserver()}
	opts := options(p.observer)
	opts.Config.Agent.KillTimeout = 2_000_000_000 * time.Second // the configuration takes up to 2^32-1
	var err error
	if p.Sandbox, err = virtcontainers.New(t.Context(), p.host.Platform(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	p.run(sandboxID)
	c := p.run("c1")
	p.host.Agent.Fail("Kill", errdefs.ErrFailedPrecondition)
	_ = initOf(t, c).Kill(t.Context(), uint32(unix.SIGKILL), true)
	time.Sleep(time.Second)
	if got := p.observer.list(); len(got) > 0 {
		t.Errorf("exits %v: the guest has had no time", got)
	}
}
