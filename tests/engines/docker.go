package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// daemonPatience is how long a daemon may take to answer after its start.
const daemonPatience = 2 * time.Minute

// docker is dockerd with a containerd that it starts itself.
type docker struct {
	name   string
	dir    string         // of dockerd and docker
	path   string         // PATH of the daemon and the client
	work   string         // roots and sockets
	log    string         // of dockerd, containerd and the shims
	daemon *harness.Child // nil before it is started
	// experimental allows docker checkpoint.
	experimental bool
}

// startDocker28 starts a Docker that supports shims by name.
func startDocker28(ctx context.Context, l harness.Layout, archive string) (Engine, error) {
	return (&docker{}).startAs28(ctx, l, archive)
}

func (d *docker) startAs28(ctx context.Context, l harness.Layout, archive string) (Engine, error) {
	release, err := harness.FindRelease(l, "2.4")
	if err != nil {
		return nil, err
	}
	d.name, d.dir = "docker-28", dockerDir(l)
	d.path = searchPath(d.dir, release.Dir, l.Bin())
	needs := []string{filepath.Join(d.dir, "dockerd"), release.Path("containerd"), tini(l)}
	if err := missing("make engines", needs...); err != nil {
		return nil, err
	}
	return d.boot(ctx, l, archive, map[string]any{"runtimeType": harness.Kata.Type})
}

// shimsByName is the first Docker release that supports shims by name.
const shimsByName = 23

// startDebianDocker starts Debian's Docker: 20.10 of Debian 12, which supports
// only OCI command lines, or 26.1 of Debian 13.
func startDebianDocker(ctx context.Context, l harness.Layout, archive string) (Engine, error) {
	return (&docker{}).startAsDebian(ctx, l, archive)
}

func (d *docker) startAsDebian(ctx context.Context, l harness.Layout, archive string) (Engine, error) {
	root := debianDir(l)
	d.dir = filepath.Join(root, "usr/bin")
	d.path = searchPath(filepath.Join(root, "usr/sbin"), d.dir, l.Bin())
	dockerd := filepath.Join(root, "usr/sbin/dockerd")
	if err := missing("make engines", dockerd, tini(l)); err != nil {
		return nil, err
	}
	release, major, err := releaseOf(ctx, debianLibraries(l), dockerd)
	if err != nil {
		return nil, err
	}
	d.name = "docker-" + release
	kata := map[string]any{"runtimeType": harness.Kata.Type}
	if major < shimsByName {
		kata = map[string]any{"path": filepath.Join(l.Bin(), "kata-runtime")}
	}
	return d.boot(ctx, l, archive, kata)
}

func (d *docker) boot(ctx context.Context, l harness.Layout, archive string, kata map[string]any) (Engine, error) {
	d.work = filepath.Join(workDir, d.name)
	d.log = filepath.Join(l.Logs(), "engines-"+d.name+".log")
	if err := d.configure(l, kata); err != nil {
		return nil, err
	}
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	out, err := d.Command(ctx, harness.Runc, "load", "-i", archive).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("load images: %w: %s", err, out)
	}
	return d, nil
}

// configure writes daemon.json.
func (d *docker) configure(l harness.Layout, kata map[string]any) error {
	config := map[string]any{
		"data-root":        filepath.Join(d.work, "root"),
		"exec-root":        filepath.Join(d.work, "exec"),
		"pidfile":          filepath.Join(d.work, "pid"),
		"hosts":            []string{d.address()},
		"storage-driver":   "overlay2",
		"exec-opts":        []string{"native.cgroupdriver=cgroupfs"},
		"cgroup-parent":    cgroupParent(),
		"init-path":        tini(l),
		"live-restore":     true,
		"ip6tables":        false,
		"shutdown-timeout": 5,
		"runtimes":         map[string]any{harness.Kata.Name: kata},
		"experimental":     d.experimental,
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return fmt.Errorf("encode daemon.json: %w", err)
	}
	for _, dir := range []string{d.work, l.Logs()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	if err := os.WriteFile(d.configPath(), text, 0o600); err != nil {
		return fmt.Errorf("write daemon.json: %w", err)
	}
	return nil
}

func (d *docker) address() string    { return "unix://" + filepath.Join(d.work, "docker.sock") }
func (d *docker) configPath() string { return filepath.Join(d.work, "daemon.json") }

// env returns the environment of dockerd, of its containerd, which leaves restored
// checkpoints in XDG_RUNTIME_DIR, and of docker.
func (d *docker) env() []string {
	return []string{"PATH=" + d.path, "HOME=" + d.work, "XDG_RUNTIME_DIR=" + d.work}
}

func (d *docker) start(ctx context.Context) error {
	program, err := lookIn(d.path, "dockerd")
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "--config-file", d.configPath())
	cmd.Env = d.env()
	if d.daemon, err = harness.StartChild(cmd, d.log); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	return d.daemon.Ready(ctx, func(ctx context.Context) error {
		return d.Command(ctx, harness.Runc, "version").Run()
	})
}

// Name implements Engine.
func (d *docker) Name() string { return d.name }

// Lacks implements Engine. Docker 20.10 requests all capabilities, and runc
// fails if root lacks them.
func (d *docker) Lacks() []Feature {
	lacks := []Feature{Compose, Pods}
	if d.name == "docker-20.10" && !hasAllCapabilities() {
		lacks = append(lacks, Privileged)
	}
	return lacks
}

// LogPath implements Engine.
func (d *docker) LogPath() string { return d.log }

// Command implements Engine.
func (d *docker) Command(ctx context.Context, r harness.Runtime, args ...string) *exec.Cmd {
	if isMake(args) {
		args = withFlags(args, "--runtime", r.Name)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(d.dir, "docker"), append([]string{"--host", d.address()}, args...)...)
	cmd.Env = d.env()
	return cmd
}

// Crash implements Engine.
func (d *docker) Crash(ctx context.Context) error {
	d.daemon.Kill()
	if err := os.Remove(filepath.Join(d.work, "pid")); err != nil {
		return fmt.Errorf("remove dockerd's pid file: %w", err)
	}
	return d.start(ctx)
}

// Stop implements Engine.
func (d *docker) Stop(ctx context.Context) error { return d.daemon.Stop(ctx) }
