package harness

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// Options select what a Daemon runs.
type Options struct {
	Layout  Layout
	Release Release
	Runtime Runtime
	// Kata varies the runtime's configuration; unused with runc.
	Kata KataConfig
	// Env is added to containerd's environment, and so to its shims'.
	Env []string
	// Debug makes containerd and its shims log at debug level.
	Debug bool
	// Namespace is the containerd namespace of all containers and images;
	// "katabox" when empty. CRI's is "k8s.io".
	Namespace string
	// Plugins names plugins of containerd that the harness would otherwise
	// disable.
	Plugins []string
	// Prepare, if set, is called once before containerd starts, when the
	// daemon's directory exists. Its result, whole TOML tables, is appended to
	// containerd's configuration.
	Prepare func(*Daemon) (string, error)
}

// Daemon is one private containerd. Its methods may be called from several
// goroutines, except Stop and Settled.
type Daemon struct {
	// Dir holds everything of the daemon: root, state, sockets, FIFOs.
	Dir string
	// LogPath is the file with the daemon's and its shims' log; it stays
	// after Stop.
	LogPath string
	// Snapshotter is the one that works on this host's file system.
	Snapshotter string
	// Client is connected to the daemon. Operations of more than one call need
	// a context made by Context.
	Client *client.Client

	options Options
	release Release
	tag     string
	before  HostState
	child   *Child
	// crashed is set once the daemon was killed.
	crashed bool
	nextID  atomic.Int64
	// reported holds the leaks that Settled has already reported.
	reported HostState
	// sharesTemplates is set while the daemon is a user of made.
	sharesTemplates bool
	// accelChecked is how much of the log checkAccel has read, in bytes.
	accelChecked int64
}

// Start starts a daemon, waits until it answers, and imports the test images.
// The caller must Stop it. An error says what to build or install.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	if err := errors.Join(o.Release.missing(), o.Runtime.missing(o.Layout)); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	d, err := newDaemon(o)
	if err != nil {
		return nil, err
	}
	if err := d.boot(ctx); err != nil {
		err = fmt.Errorf("start containerd %s: %w\n%s", o.Release.Name, err, d.LogTail(20))
		return nil, errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
	}
	return d, nil
}

// newDaemon prepares the directory and records the host's state.
func newDaemon(o Options) (*Daemon, error) {
	if err := adoptOrphans(); err != nil {
		return nil, err
	}
	before, err := ReadHostState()
	if err != nil {
		return nil, err
	}
	// Short: a unix socket's path has at most 107 bytes (unix(7)).
	dir, err := os.MkdirTemp("/tmp", "kbt")
	if err != nil {
		return nil, fmt.Errorf("make daemon directory: %w", err)
	}
	word := make([]byte, 4)
	_, _ = rand.Read(word) // never fails (crypto/rand)
	d := &Daemon{Dir: dir, options: o, release: o.Release, tag: "kb" + hex.EncodeToString(word), before: before, reported: HostState{}}
	d.LogPath = filepath.Join(o.Layout.Logs(), "containerd-"+o.Release.Name+"-"+d.tag+".log")
	return d, nil
}

func (d *Daemon) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for _, dir := range []string{d.fifoDir(), d.options.Layout.Logs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	d.Snapshotter = chooseSnapshotter(d.Dir)
	if err := errors.Join(d.writeConfigs(), d.shareTemplates()); err != nil {
		return err
	}
	if err := d.launch(); err != nil {
		return err
	}
	if err := d.connect(ctx); err != nil {
		return err
	}
	if err := d.ImportImages(d.Context(ctx)); err != nil {
		return err
	}
	return d.makeTemplate(ctx)
}

// Factory runs kata-runtime factory with the daemon's configuration, and returns
// what it prints.
func (d *Daemon) Factory(ctx context.Context, verb string, options ...string) (string, error) {
	args := append([]string{"factory", verb, "--config", d.KataConfigPath()}, options...)
	cmd := exec.CommandContext(ctx, filepath.Join(d.Layout().Bin(), "kata-runtime"), args...)
	cmd.Env = append(os.Environ(), d.TagEnv())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Context returns ctx in the daemon's containerd namespace.
func (d *Daemon) Context(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, d.Namespace())
}

// Namespace is the containerd namespace of everything the harness makes.
func (d *Daemon) Namespace() string {
	if d.options.Namespace != "" {
		return d.options.Namespace
	}
	return "katabox"
}

// Tag returns the daemon's unique tag, ten letters and digits. The leak check
// finds everything with the tag in its name.
func (d *Daemon) Tag() string { return d.tag }

// TagEnv is an environment variable. In a program that a test starts it makes the leak
// check count it and its children as the daemon's.
func (d *Daemon) TagEnv() string { return envTag + "=" + d.tag }

// Release returns the containerd release.
func (d *Daemon) Release() Release { return d.release }

// Runtime returns the runtime of the containers.
func (d *Daemon) Runtime() Runtime { return d.options.Runtime }

// Layout is the checkout the daemon was started from.
func (d *Daemon) Layout() Layout { return d.options.Layout }

// Socket is the daemon's gRPC address.
func (d *Daemon) Socket() string { return filepath.Join(d.Dir, "c.sock") }

// HostName returns the shim's name on the host for the sandbox id: of the
// directory of its record, and its cgroups.
func (d *Daemon) HostName(id string) string {
	return persist.Owner{Address: d.Socket(), Namespace: d.Namespace()}.Name(id)
}

// KataConfigPath is the runtime's configuration file.
func (d *Daemon) KataConfigPath() string { return filepath.Join(d.Dir, "kata.toml") }

// NewID returns a unique container id: the daemon's tag, name and a number.
func (d *Daemon) NewID(name string) string {
	return fmt.Sprintf("%s-%s-%d", d.tag, name, d.nextID.Add(1))
}

func (d *Daemon) configPath() string { return filepath.Join(d.Dir, "containerd.toml") }
func (d *Daemon) rootDir() string    { return filepath.Join(d.Dir, "root") }
func (d *Daemon) stateDir() string   { return filepath.Join(d.Dir, "state") }
func (d *Daemon) fifoDir() string    { return filepath.Join(d.Dir, "fifo") }

// bundleDir holds one directory per task: containerd's runtime v2 state.
func (d *Daemon) bundleDir() string {
	return filepath.Join(d.stateDir(), "io.containerd.runtime.v2.task", d.Namespace())
}

// BundleDir returns the directory of the bundle of the container id.
func (d *Daemon) BundleDir(id string) string { return filepath.Join(d.bundleDir(), id) }
