package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/log"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/shim/descriptors"
	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/shim/events"
	"github.com/katabox/katabox/shim/journal"
	"github.com/katabox/katabox/shim/rpc"
	"github.com/katabox/katabox/shim/sandbox"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/prom"
)

const (
	// socketFD is the listening socket that start passed on.
	socketFD = 3
	// endTimeout bounds each part of the shutdown but the first: the sandbox bounds
	// its own end, in which the guest gets time to end its processes and to flush its
	// disks. Anything not done by stopTimeout is left to "delete". It is below the 90 s
	// after which systemd kills a service by default.
	endTimeout, stopTimeout = 10 * time.Second, time.Minute
	// unusedTimeout ends a daemon whose engine has made nothing and is not connected: it
	// may have died, or not have understood the address. A connected engine may take
	// longer: it pulls an image between CreateSandbox and StartSandbox.
	unusedTimeout = 2 * time.Minute
	// heapBytes is the limit near which the collector works harder: three
	// quarters of what the pod's overhead cgroup has for this process (sizing's
	// helpersMiB).
	heapBytes = 384 << 20
)

// Serve is the daemon: it answers the task API until Shutdown or SIGTERM, and
// leaves nothing behind, not even a logger.
func Serve(ctx context.Context, p *Params, platform virtcontainers.Platform) error {
	listener, err := inheritSocket()
	if err != nil {
		return err
	}
	return EndLoggers(ctx, p, ServeOn(ctx, p, platform, listener))
}

// ServeOn is Serve on a listening socket, which it owns. The caller calls
// EndLoggers after it.
func ServeOn(ctx context.Context, p *Params, platform virtcontainers.Platform, listener net.Listener) error {
	// A shim is small and long-lived: a little more work for the collector saves
	// much memory on a host with many pods.
	debug.SetGCPercent(40)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapBytes)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer catchSIGPIPE()()
	defer logStacksOnSignal(ctx)()
	for _, name := range []string{launchedEnv, configEnv} {
		_ = os.Unsetenv(name) // must not reach the shim's children
	}
	// Descriptors that the engine left open must not reach the machine or its
	// helpers.
	if err := descriptors.KeepFromChildren(socketFD); err != nil {
		log.G(ctx).WithError(err).Debug("inherited files stay open in children")
	}
	platform.Owner = p.owner()
	if engine.For(p.Namespace, p.GRPCAddress).NoPool || p.schedCore {
		// A spare would not be claimed, and a keeper would stay in its caller's cgroup.
		platform.StartSpare, platform.StartKeeper = nil, nil
	}
	d := &daemon{params: p, socket: listener.Addr().String(), owed: rpc.NewOwed(), exit: make(chan struct{})}
	d.publisher = events.NewPublisher(ctx, p.Namespace, p.EventAddress)
	calls, lines, tracer := new(prom.Durations), journal.New(), newTracer(ctx, p)
	log.G(ctx).Logger.AddHook(lines)
	d.service = task.New(task.Options{ID: p.ID, Namespace: p.Namespace, Address: p.GRPCAddress, Platform: platform, Publisher: d.publisher,
		ExitFIFODir: os.Getenv("EXIT_FIFO_DIR"), Exit: d.requestExit,
		Arrival: virtcontainers.Arrival{Launched: p.launched, Serving: time.Now()}, Configured: configure(tracer), Manage: manage(calls, lines, tracer)})
	server, err := ttrpc.NewServer(ttrpc.WithChainUnaryServerInterceptor(observed(calls), tracer.Intercept))
	if err != nil {
		return fmt.Errorf("make server: %w", err)
	}
	task.Register(server, d.service)
	d.registerShim(server)
	sandbox.Register(server, sandbox.New(p.ID, p.configPath, d.service))
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.WithoutCancel(ctx), d.owed.Listener(listener)) }()
	defer d.owed.WhenAlone(cmp.Or(p.unusedAfter, unusedTimeout), d.exitUnused)()
	select {
	case <-d.exit:
	case <-ctx.Done():
	case err = <-served:
	}
	err = errors.Join(err, d.end(context.WithoutCancel(ctx), server))
	tracer.Close()
	return err
}

// catchSIGPIPE keeps a write to a pipe without a reader from ending this process,
// until the function that it returns is called. The signal is not ignored: hooks and
// loggers would inherit that (signal(7)).
func catchSIGPIPE() (stop func()) {
	dropped := make(chan os.Signal, 1)
	signal.Notify(dropped, syscall.SIGPIPE)
	return func() { signal.Stop(dropped) }
}

func inheritSocket() (net.Listener, error) { return Listener(os.NewFile(socketFD, "shim socket")) }

// Listener returns the listener of an open socket, which it closes.
func Listener(f *os.File) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take over socket: %w", err), f.Close())
	}
	return l, f.Close()
}

type daemon struct {
	params *Params
	// socket is the path of its socket. The bundle has it too, but the engine may
	// remove that before the daemon has ended (iSulad's rm -f).
	socket    string
	publisher *events.Publisher
	service   *task.Service
	owed      *rpc.Owed
	// exit is closed when it begins to end.
	exit     chan struct{}
	exitOnce sync.Once
}

// requestExit may be called during a request; the daemon ends after the answer to
// it.
func (d *daemon) requestExit() {
	d.exitOnce.Do(func() {
		d.markEnding()
		close(d.exit)
	})
}

// markEnding tells a concurrent "shim delete" to wait. It fails when the engine
// has removed the bundle: no delete comes then.
func (d *daemon) markEnding() { _ = writeFile(d.params.Bundle, bundle.EndingFile, "") }

// isEnding reports whether the daemon has begun to end.
func (d *daemon) isEnding() bool {
	select {
	case <-d.exit:
		return true
	default:
		return false
	}
}

func (d *daemon) exitUnused() {
	select {
	case <-d.service.Used():
	default:
		d.requestExit()
	}
}

// end stops every part of the daemon, each with its own timeout.
func (d *daemon) end(ctx context.Context, server *ttrpc.Server) error {
	within := func(limit time.Duration, part func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return part(ctx)
	}
	d.requestExit() // it may end because of a signal
	err := errors.Join(
		within(stopTimeout, d.service.Stop),
		removeSocket(bundle.AddressScheme+d.socket),
		within(endTimeout, d.owed.Wait),
		within(endTimeout, server.Shutdown),
		server.Close(),
		within(endTimeout, d.publisher.Close),
	)
	if err != nil {
		log.G(ctx).WithError(err).Error("shim ended with errors")
	} else {
		log.G(ctx).Info("shim ended")
	}
	return err
}
