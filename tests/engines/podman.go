package engines

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/katabox/katabox/tests/harness"
)

// podman is Debian's Podman, 4.3 of Debian 12 or 5.4 of Debian 13; it has no daemon.
type podman struct {
	name string
	root string // of the unpacked packages
	work string
	bin  string
	libs string
	log  string
}

func startPodman(ctx context.Context, l harness.Layout, archive string) (Engine, error) {
	p := &podman{
		root: debianDir(l), work: filepath.Join(workDir, "podman"), bin: l.Bin(), libs: debianLibraries(l),
		log: filepath.Join(l.Logs(), "engines-podman.log"),
	}
	if err := missing("make engines", p.program("podman"), p.program("conmon"), tini(l)); err != nil {
		return nil, err
	}
	release, major, err := releaseOf(ctx, p.libs, p.program("podman"))
	if err != nil {
		return nil, err
	}
	if p.name = "podman"; major > 4 {
		p.name += "-" + release
	}
	if err := p.configure(l); err != nil {
		return nil, err
	}
	out, err := p.Command(ctx, harness.Runc, "load", "-i", archive).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("load images: %w: %s", err, out)
	}
	return p, nil
}

func (p *podman) program(name string) string { return filepath.Join(p.root, "usr/bin", name) }

// configure writes Podman's files with fixed names; the private host's /etc is
// not the machine's.
func (p *podman) configure(l harness.Layout) error {
	engine := fmt.Sprintf(`[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
conmon_path = [%q]
helper_binaries_dir = [%q]
init_path = %q
stop_timeout = 1
[engine.runtimes]
runc = ["/usr/sbin/runc", "/usr/bin/runc"]
kata = [%q]
[network]
network_backend = "netavark"
`, p.program("conmon"), filepath.Join(p.root, "usr/lib/podman"), tini(l), filepath.Join(p.bin, "kata-runtime"))
	storage := fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n",
		filepath.Join(p.work, "root"), filepath.Join(p.work, "run"))
	if p.name != "podman" {
		// Since Podman 5 netavark's default rules (nftables) drop traffic
		// between containers of a network if the host's kernel passes bridged
		// packets to them. Seen with runc.
		engine += "firewall_driver = \"iptables\"\n"
	}
	files := map[string]string{
		"/etc/containers/containers.conf": engine,
		"/etc/containers/storage.conf":    storage,
		"/etc/containers/registries.conf": "unqualified-search-registries = []\n",
		"/etc/containers/policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}`,
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("configure podman: %w", err)
		}
	}
	return os.MkdirAll(p.work, 0o711)
}

// Name implements Engine.
func (p *podman) Name() string { return p.name }

// Lacks implements Engine.
func (p *podman) Lacks() []Feature { return []Feature{Compose, Daemon, OOMReport} }

// LogPath implements Engine.
func (p *podman) LogPath() string { return p.log }

// Command implements Engine.
func (p *podman) Command(ctx context.Context, r harness.Runtime, args ...string) *exec.Cmd {
	if isMake(args) {
		args = withFlags(args, "--cgroup-parent", cgroupParent())
	}
	if len(args) > 1 && args[0] == "pod" && args[1] == "create" {
		args = slices.Concat(args[:2], []string{"--cgroup-parent", cgroupParent()}, args[2:])
	}
	all := slices.Concat([]string{"--runtime", r.Name}, args)
	cmd := exec.CommandContext(ctx, p.program("podman"), all...)
	cmd.Dir = p.work // at an OOM kill conmon makes a file "oom" in its working directory
	cmd.Env = []string{
		"PATH=" + searchPath(filepath.Join(p.root, "usr/bin"), p.bin), "HOME=" + p.work,
		"LD_LIBRARY_PATH=" + p.libs, "PODMAN_IGNORE_CGROUPSV1_WARNING=1",
	}
	return cmd
}

// Crash does nothing: there is no daemon.
func (p *podman) Crash(context.Context) error { return nil }

// Stop has nothing to end: conmon ends with its container.
func (p *podman) Stop(context.Context) error { return nil }
