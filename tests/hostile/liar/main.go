package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"github.com/mdlayher/vsock"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/container"
	_ "github.com/katabox/katabox/agent/container/inside" // Takes over when started as "init".
	"github.com/katabox/katabox/agent/guest"
	"github.com/katabox/katabox/agent/hostkey"
	"github.com/katabox/katabox/agent/logs"
	_ "github.com/katabox/katabox/agent/modules/modprobe" // Takes over when started as "modprobe".
	"github.com/katabox/katabox/agent/service"
	"github.com/katabox/katabox/agent/stream"
)

// realSocket is where the agent itself serves.
const realSocket = "/run/liar.sock"

// As the agent's main does: the first thread stays main's.
func init() { runtime.LockOSThread() }

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "liar is the first process of a guest; it does nothing elsewhere")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "liar:", run(context.Background()))
	os.Exit(1)
}

func run(ctx context.Context) error {
	if err := guest.EnterRoot(); err != nil {
		return err
	}
	modules, err := guest.Boot(ctx, nil)
	if err != nil {
		return err
	}
	words, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	reaper := guest.NewReaper()
	pod := service.NewPod(service.Config{
		Runtime: service.LibRuntime{Runtime: &container.Runtime{
			StateDir: api.GuestRunDir + "/agent", Children: reaper, Confine: sync.OnceValue(container.RefuseVsock),
		}},
		Mounter: guest.NewMounter(modules),
		RunDir:  api.GuestRunDir,
	})
	if err := pod.PinNamespaces(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { reaper.Run(ctx); return nil })
	group.Go(func() error { return serve(ctx, group, pod, lieOf(string(words))) })
	return errors.Join(errors.New("the liar stopped serving"), group.Wait())
}

// lieOf returns the lie that the kernel's command line selects.
func lieOf(cmdline string) string {
	for word := range strings.FieldsSeq(cmdline) {
		if lie, ok := strings.CutPrefix(word, "katabox.lie="); ok {
			return lie
		}
	}
	return ""
}

// serve makes the agent serve a socket in the guest, and the liar the host's
// ports in front of it.
func serve(ctx context.Context, group *errgroup.Group, pod *service.Pod, lie string) error {
	local, err := net.Listen("unix", realSocket)
	if err != nil {
		return err
	}
	group.Go(func() error { return service.Serve(ctx, local, pod, service.BootTimes{}, guest.PowerOff) })
	conn, err := net.Dial("unix", realSocket)
	if err != nil {
		return err
	}
	agent := ttrpc.NewClient(conn)
	l := &liar{GuestClient: api.NewGuestClient(agent), lie: lie, started: make(chan struct{})}
	var keeper hostkey.Keeper
	keyPort, err := listen(api.PortKey)
	if err != nil {
		return err
	}
	group.Go(func() error { return l.serveKey(ctx, &keeper, keyPort) })
	group.Go(func() error {
		return onPort(api.PortLog, keeper.Guard, func(p net.Listener) error { return l.serveLog(ctx, p) })
	})
	group.Go(func() error {
		return onPort(api.PortStream, keeper.Guard, func(p net.Listener) error {
			switch lie {
			case "endless-output":
				p = endless{p}
			case "hang-streams":
				p = mute{p, l.started}
			}
			return (&stream.Server{Finder: pod}).Serve(ctx, l.withLengths(p, "stream"))
		})
	})
	server, err := ttrpc.NewServer(ttrpc.WithUnaryServerInterceptor(l.intercept))
	if err != nil {
		return err
	}
	taskapi.RegisterTTRPCTaskService(server, taskapi.NewTTRPCTaskClient(agent))
	api.RegisterGuestService(server, l)
	return onPort(api.PortRPC, keeper.GuardCalls, func(p net.Listener) error { return server.Serve(ctx, l.withLengths(p, "rpc")) })
}

func listen(port uint32) (net.Listener, error) {
	l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, port, nil)
	if err != nil {
		return nil, fmt.Errorf("listen on vsock port %d: %w", port, err)
	}
	return l, nil
}

func onPort(port uint32, guard func(net.Listener) net.Listener, serve func(net.Listener) error) error {
	l, err := listen(port)
	if err != nil {
		return err
	}
	return serve(guard(l))
}

// serveLog serves the agent's empty log, or an endless one.
func (l *liar) serveLog(ctx context.Context, port net.Listener) error {
	var line []byte
	switch l.lie {
	case "flood-log":
		line = []byte(`{"level":"error","msg":"` + strings.Repeat("x", 8<<10) + "\"}\n")
	case "log-lines":
		line = oddLines()
	default:
		return logs.NewRing(1<<10).Serve(ctx, port)
	}
	for {
		conn, err := port.Accept()
		if err != nil {
			return err
		}
		go func() {
			<-l.started
			for {
				if _, err := conn.Write(line); err != nil {
					return
				}
				l.toldOnce()
			}
		}()
	}
}
