package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// Runtime is what a user gives to --runtime; the program's name follows
	// from its last two parts.
	Runtime  = "io.containerd.kata.v2"
	shimName = "containerd-shim-kata-v2"
	// Namespace is iSulad's only namespace.
	Namespace = "isula"
)

// Options configure an Engine.
type Options struct {
	// Dir holds all the engine's files; its storage is mounted there.
	Dir string
	// ShimDir is the directory of the shim's program: the engine's PATH besides
	// the system's.
	ShimDir string
	// ConfigFile is the runtime's configuration.
	ConfigFile string
	// Images are root file systems by name: directories.
	Images map[string]string
	// Env is added to the engine's environment.
	Env []string
	// NoMonitor makes it behave like an engine older than v2.1.3, which never
	// calls Wait.
	NoMonitor bool
}

// Engine manages containers. Its methods may be called from several goroutines.
type Engine struct {
	opts Options
	// life serves the supervisors; end is the engine's death.
	life context.Context //nolint:containedctx // the engine's own life, not a request's
	end  context.CancelFunc
	work sync.WaitGroup

	mu         sync.Mutex // guards containers
	containers []*Container
}

// New starts an engine. It makes the storage unless a dead engine has left it.
// The caller must call Close.
func New(o Options) (*Engine, error) {
	// iSulad ignores these, and its children inherit that.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1)
	e := &Engine{opts: o}
	e.life, e.end = context.WithCancel(context.Background())
	for _, dir := range []string{e.bundleRoot(), e.stateRoot()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("start engine: %w", err)
		}
	}
	if mounted(e.overlayHome()) {
		return e, nil
	}
	return e, e.openStorage()
}

func (e *Engine) graph() string { return filepath.Join(e.opts.Dir, "var", "lib", "isulad") }

func (e *Engine) bundleRoot() string { return filepath.Join(e.graph(), "engines", Runtime) }

// stateRoot is the parent of every container's exit FIFO.
func (e *Engine) stateRoot() string {
	return filepath.Join(e.opts.Dir, "var", "run", "isulad", Runtime)
}

// mounted reports whether path is a mount point.
func mounted(path string) bool {
	var at, parent unix.Stat_t
	if unix.Stat(path, &at) != nil || unix.Stat(filepath.Dir(path), &parent) != nil {
		return false
	}
	return at.Dev != parent.Dev
}

// Crash ends the engine as SIGKILL would, except that its connections stay
// open, with their pending calls, until Close: a shim may notice an engine's
// death late. Its containers keep running; another Engine may Restore them.
func (e *Engine) Crash() {
	e.end()
	for _, c := range e.all() {
		c.closeConsoles()
	}
}

// Close ends the engine and its connections; the storage stays. The containers'
// supervisors do not finish their work.
func (e *Engine) Close() {
	e.Crash()
	for _, c := range e.all() {
		c.disconnect()
	}
	e.work.Wait()
}

// RemoveStorage unmounts what New mounted, once no engine is left.
func (e *Engine) RemoveStorage() error {
	if err := unix.Unmount(e.overlayHome(), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount storage: %w", err)
	}
	return nil
}

func (e *Engine) all() []*Container {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*Container(nil), e.containers...)
}

func (e *Engine) add(c *Container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.containers = append(e.containers, c)
}
