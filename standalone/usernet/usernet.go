package usernet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// readyTimeout bounds the start of a program.
const readyTimeout = 15 * time.Second

// Names of the programs, in the order in which Start tries them.
const (
	Pasta = "pasta"
	Slirp = "slirp4netns"
)

// Config describes the wanted network.
type Config struct {
	// Program is Pasta or Slirp; "" is the first that works.
	Program string
	// Dir is the caller's directory for logs and sockets.
	Dir string
	// Ports are forwarded from the host to the container.
	Ports []Port
}

// Net is a running network. The caller must Close it.
type Net struct {
	// Program is the program that carries the packets.
	Program string
	// Resolver is the address of the name server that the container uses.
	Resolver string

	ns   *os.File
	once sync.Once
	stop context.CancelFunc
	done chan struct{} // closed when the program has ended
	err  error         // why it ended; read only after done is closed
	log  string        // the file with its output; set before it starts
}

// starter starts one program in the namespace and returns when packets flow.
type starter func(ctx context.Context, n *Net, cfg Config) error

var starters = map[string]starter{Pasta: startPasta, Slirp: startSlirp}

// Start makes the namespace and starts the program. It fails with
// errdefs.ErrNotFound if none is installed.
func Start(ctx context.Context, cfg Config) (*Net, error) {
	names := []string{Pasta, Slirp}
	if cfg.Program != "" {
		if starters[cfg.Program] == nil {
			return nil, fmt.Errorf("network %q: want %s, %s or none: %w", cfg.Program, Pasta, Slirp, errdefs.ErrInvalidArgument)
		}
		names = []string{cfg.Program}
	}
	if err := checkPorts(ctx, cfg.Ports); err != nil {
		return nil, err
	}
	var missing, failed []error
	for _, name := range names {
		n, err := start(ctx, name, cfg)
		switch {
		case err == nil:
			return n, nil
		case errdefs.IsNotFound(err):
			missing = append(missing, err)
		default:
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return nil, errors.Join(failed...)
	}
	return nil, errors.Join(missing...)
}

func start(ctx context.Context, name string, cfg Config) (*Net, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	n := &Net{Program: name, ns: ns, stop: func() {}, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := starters[name](ctx, n, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("start network: %s: %w", name, err), n.Close())
	}
	return n, nil
}

// Path returns the path of the namespace, valid while this process lives and
// until Close.
func (n *Net) Path() string {
	return filepath.Join("/proc", fmt.Sprint(os.Getpid()), "fd", fmt.Sprint(n.ns.Fd()))
}

// Done returns a channel that is closed when the program has ended, by Close or
// by itself.
func (n *Net) Done() <-chan struct{} { return n.done }

// Err returns why the program has ended, with its last words; Done is closed.
func (n *Net) Err() error { return fmt.Errorf("network: %s: %w", n.Program, n.ended(n.log)) }

// Close ends the program, and the namespace unless another process has it open.
func (n *Net) Close() error {
	var err error
	n.once.Do(func() {
		n.stop()
		<-n.done
		err = n.ns.Close()
	})
	return err
}

// newNamespace makes a network namespace with its loopback up.
func newNamespace() (ns *os.File, err error) {
	err = ownthread.Run(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		if err := loopbackUp(); err != nil {
			return err
		}
		if ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		return nil
	})
	return ns, err
}

// loopbackUp brings up the loopback of the thread's namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	return nil
}
