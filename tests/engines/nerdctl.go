package engines

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
)

// nerdctl is the harness's containerd with nerdctl in front.
type nerdctl struct {
	daemon *harness.Daemon
	dir    string // of nerdctl
	tini   string
}

func startNerdctl(ctx context.Context, l harness.Layout, _ string) (Engine, error) {
	n := &nerdctl{dir: nerdctlDir(l), tini: tini(l)}
	if err := missing("make engines", filepath.Join(n.dir, "nerdctl")); err != nil {
		return nil, err
	}
	release, err := harness.FindRelease(l, "2.4")
	if err != nil {
		return nil, err
	}
	// nerdctl puts a container into the cgroup that is named like its
	// namespace.
	n.daemon, err = harness.Start(ctx, harness.Options{
		Layout: l, Release: release, Runtime: harness.Kata, Namespace: host.Name(),
		Kata: kataConfig,
	})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(n.work(), 0o711); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	return n, nil
}

func (n *nerdctl) work() string { return filepath.Join(workDir, "nerdctl") }

// Name implements Engine.
func (n *nerdctl) Name() string { return "nerdctl" }

// LogPath implements Engine.
func (n *nerdctl) LogPath() string { return n.daemon.LogPath }

// Lacks implements Engine: nerdctl never ends an empty input, sets a terminal's
// size before the start, when runc's shim ignores it, and its logger loses the
// end of long output if it is slower than the container. Seen with runc.
func (n *nerdctl) Lacks() []Feature {
	return []Feature{Pods, HealthChecks, OOMReport, EmptyInput, StartInput, TerminalSize, WholeLogs, Connect}
}

// Command implements Engine.
func (n *nerdctl) Command(ctx context.Context, r harness.Runtime, args ...string) *exec.Cmd {
	if isMake(args) {
		args = withFlags(args, "--runtime", r.Type, "--pull", "never")
	}
	if i := slices.Index(args, "--init"); i >= 0 {
		args = slices.Insert(slices.Clone(args), i+1, "--init-binary", n.tini)
	}
	all := slices.Concat([]string{
		"--address", n.daemon.Socket(), "--namespace", n.daemon.Namespace(), "--snapshotter", n.daemon.Snapshotter,
		"--data-root", filepath.Join(n.work(), "data"), "--cgroup-manager", "cgroupfs", "--cni-path", cniBinDir,
	}, args)
	cmd := exec.CommandContext(ctx, filepath.Join(n.dir, "nerdctl"), all...)
	cmd.Env = n.daemon.Env()
	return cmd
}

// Crash implements Engine.
func (n *nerdctl) Crash(ctx context.Context) error { return n.daemon.Restart(ctx) }

// Stop implements Engine.
func (n *nerdctl) Stop(ctx context.Context) error { return n.daemon.Stop(ctx) }
