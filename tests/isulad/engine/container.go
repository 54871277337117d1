package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Config describes a container to create.
type Config struct {
	// ID is a new one unless it is set.
	ID string
	// Image is a key of Options.Images.
	Image string
	// Args are the image's entrypoint and the user's command.
	Args []string
	Env  []string
	// Annotations are the user's, by --annotation.
	Annotations map[string]string
	TTY         bool
	// CPUShares is in the spec unless it is 0.
	CPUShares uint64
	// Namespaces are paths by the namespace's type, as CRI gives them; the
	// others are new.
	Namespaces map[specs.LinuxNamespaceType]string
	// Created, when not nil, is called between Create and Start.
	Created func()
	// Rootfs, if not empty, replaces the container's root in the spec.
	Rootfs string
}

// exitUnknown is the code that iSulad records for a container that could not be
// started.
const exitUnknown = 125

// exitLostState is the code that a restarted iSulad records for containers that
// ended meanwhile.
const exitLostState = 255

var errNoShim = errors.New("there is no connection to a shim")

// Container is one container of an Engine.
type Container struct {
	ID     string
	cfg    Config
	engine *Engine

	mu sync.Mutex // guards what follows
	// conn, pid, address, stopped and console are those of the last start.
	// conns and consoles are all that were made: iSulad closes no connection.
	conn     *conn
	conns    []*conn
	consoles []*Console
	pid      uint32
	address  string
	console  *Console
	// stopped is closed when the supervisor has finished.
	stopped  chan struct{}
	exitCode int32
	failure  error
	calls    []Call
	launches []Launched
}

// NewID returns a container id like iSulad's.
func NewID() string {
	id := make([]byte, 32)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	return hex.EncodeToString(id)
}

// Create is "isula create": the bundle's files, without any call of the shim.
func (e *Engine) Create(cfg Config) (*Container, error) {
	if cfg.ID == "" {
		cfg.ID = NewID()
	}
	c := &Container{ID: cfg.ID, cfg: cfg, engine: e}
	if err := c.writeBundle(); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	e.add(c)
	return c, nil
}

// Bundle returns the directory in which the shim is called.
func (c *Container) Bundle() string { return filepath.Join(c.engine.bundleRoot(), c.ID) }

func (c *Container) shm() string { return filepath.Join(c.Bundle(), "mounts", "shm") }

func (c *Container) stateDir() string { return filepath.Join(c.engine.stateRoot(), c.ID) }

func (c *Container) writeBundle() error {
	if err := os.MkdirAll(c.shm(), 0o700); err != nil {
		return err
	}
	if err := unix.Mount("shm", c.shm(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777,size=65536k"); err != nil {
		return fmt.Errorf("mount shm: %w", err)
	}
	files := map[string]string{
		"config.v2.json": "{}", "container_state.json": "{}", "hostconfig.json": "{}", "network_settings.json": "{}",
		"hostname": c.ID[:12] + "\n", "hosts": "127.0.0.1\tlocalhost\n", "resolv.conf": "nameserver 192.0.2.1\n",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(c.Bundle(), name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes what every start needs anew: the mount, the spec and an empty
// log.
func (c *Container) prepare() error {
	if err := c.mountRootfs(); err != nil {
		return err
	}
	spec, err := c.specJSON()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(c.Bundle(), "config.json"), spec, 0o640),
		os.WriteFile(c.LogPath(), nil, 0o640),
	)
}

// LogPath returns the file in the bundle to which a shim may log.
func (c *Container) LogPath() string { return filepath.Join(c.Bundle(), "log") }

// Address returns what the last start printed.
func (c *Container) Address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.address
}

// PID returns Start's answer; iSulad shows it, and makes paths of it.
func (c *Container) PID() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// Calls returns the calls so far, in order; a Wait is listed where it returned.
func (c *Container) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// Launches returns the calls of the shim's program so far.
func (c *Container) Launches() []Launched {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.launches)
}

// Console returns the attached output of the last start, or nil.
func (c *Container) Console() *Console {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.console
}

// Stopped is closed when the container has ended and its supervisor has
// cleaned up.
func (c *Container) Stopped() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// Wait waits until the engine shows the container as exited, and returns the
// recorded code.
func (c *Container) Wait(ctx context.Context) (int32, error) {
	select {
	case <-c.Stopped():
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for container %.12s to be stopped: %w; calls so far: %v", c.ID, ctx.Err(), c.Calls())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exitCode, c.failure
}

// remove unmounts everything below the bundle, then removes the bundle and the
// layer.
func (c *Container) remove() error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(c.Bundle()))
	if err != nil {
		return fmt.Errorf("remove container: %w", err)
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("remove container: unmount %s: %w", m.Mountpoint, err)
		}
	}
	return errors.Join(os.RemoveAll(c.Bundle()), os.RemoveAll(c.layerDir()))
}

func (c *Container) closeConsoles() {
	c.mu.Lock()
	consoles := slices.Clone(c.consoles)
	c.mu.Unlock()
	for _, console := range consoles {
		console.close()
	}
}

// disconnect closes the connections, as only iSulad's death does.
func (c *Container) disconnect() {
	c.mu.Lock()
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	for _, conn := range conns {
		conn.close()
	}
}

// connect makes the connection for this start, or for this run of the engine.
func (c *Container) connect(address string) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.address = conn, address
	c.conns = append(c.conns, conn)
	return nil
}

// attach makes the console of one process.
func (c *Container) attach(f *fifos) (*Console, error) {
	console, err := newConsole(f)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.consoles = append(c.consoles, console)
	return console, nil
}
