package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sync/errgroup"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/container"
	_ "github.com/katabox/katabox/agent/container/inside" // Takes over when started as "init".
	"github.com/katabox/katabox/agent/debug"
	"github.com/katabox/katabox/agent/forward"
	"github.com/katabox/katabox/agent/guest"
	"github.com/katabox/katabox/agent/iptables"
	"github.com/katabox/katabox/agent/logs"
	_ "github.com/katabox/katabox/agent/modules/modprobe" // Takes over when started as "modprobe".
	"github.com/katabox/katabox/agent/reverse"
	"github.com/katabox/katabox/agent/service"
	_ "github.com/katabox/katabox/agent/slack" // Before Go starts.
	"github.com/katabox/katabox/agent/stream"
	"github.com/katabox/katabox/internal/spans"
)

// logBytes is how much of its log the agent keeps for the host.
const logBytes = 256 << 10

// The main thread is reserved for main. Threads that join a container's mount
// namespace end with their goroutine, but the main thread would stay, and with
// it /proc/self and the container's mounts.
func init() { runtime.LockOSThread() }

func main() {
	started := guest.SinceBoot()
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "kata-agent is the first process of a guest; it does nothing elsewhere")
		os.Exit(2)
	}
	if err := run(context.Background(), started); err != nil {
		fmt.Fprintln(os.Stderr, "kata-agent:", err)
	}
	os.Exit(1)
}

// run boots the guest and serves the host. It returns only on failure.
func run(ctx context.Context, started time.Duration) error {
	if err := guest.EnterRoot(); err != nil {
		return err
	}
	ring := logs.NewRing(logBytes)
	logTo(ring)
	rec := spans.New(time.Now().Add(-guest.SinceBoot()))
	modules, err := guest.Boot(ctx, rec)
	if err != nil {
		return err
	}
	opts, err := guest.ReadOptions()
	if err != nil {
		return err
	}
	log.L.Logger.SetLevel(opts.LogLevel)
	confine := sync.OnceValue(container.RefuseVsock)
	reaper := guest.NewReaper()
	runtime := &container.Runtime{StateDir: api.GuestRunDir + "/agent", Children: reaper, Confine: confine, LoadModule: modules.Demand, Spans: rec}
	go func() {
		if err := runtime.LimitThreads(guest.ReservedThreads); err != nil {
			log.G(ctx).WithError(err).Warn("a container with many processes can end the machine")
		}
		_ = confine() // containers wait for it; the agent's start need not
	}()
	pod := service.NewPod(service.Config{
		Runtime: service.LibRuntime{Runtime: runtime},
		Mounter: guest.NewMounter(modules),
		Tables:  &iptables.Tools{Children: reaper, Dirs: iptables.Dirs},
		RunDir:  api.GuestRunDir,
		Spans:   rec,
	})
	if err := pod.PinNamespaces(); err != nil {
		return err
	}
	return serve(ctx, reaper, ring, pod, started, opts.DebugConsole)
}

// serve opens the ports, then serves them.
func serve(ctx context.Context, reaper *guest.Reaper, ring *logs.Ring, pod *service.Pod, started time.Duration, console bool) error {
	ports, err := openPorts(console)
	if err != nil {
		return err
	}
	times := service.BootTimes{Agent: started, Serving: guest.SinceBoot()}
	log.G(ctx).WithField("t_agent", times.Agent.Milliseconds()).WithField("t_serving", times.Serving.Milliseconds()).Info("agent serves")

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		reaper.Run(ctx)
		return nil
	})
	group.Go(func() error { return ring.Serve(ctx, ports.log) })
	group.Go(func() error { return (&stream.Server{Finder: pod}).Serve(ctx, ports.stream) })
	group.Go(func() error { return (&forward.Server{Sockets: pod}).Serve(ctx, ports.forward) })
	group.Go(func() error { return new(reverse.Server).Serve(ctx, ports.reverse) })
	if console {
		group.Go(func() error { return (&debug.Server{Children: reaper}).Serve(ctx, ports.debug) })
	}
	group.Go(func() error { return ports.keeper.Serve(ctx, ports.key) })
	group.Go(func() error { return service.Serve(ctx, ports.rpc, pod, times, guest.PowerOff) })
	return errors.Join(errors.New("agent stopped serving"), group.Wait())
}
