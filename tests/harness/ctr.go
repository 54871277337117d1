package harness

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Ctr runs the release's own ctr against the daemon and returns what it
// printed, both streams together.
func (d *Daemon) Ctr(ctx context.Context, args ...string) (string, error) {
	out, err := d.CtrCmd(ctx, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// CtrCmd returns ctr with args, ready to run.
func (d *Daemon) CtrCmd(ctx context.Context, args ...string) *exec.Cmd {
	common := []string{"--address", d.Socket(), "--namespace", d.Namespace()}
	cmd := exec.CommandContext(ctx, d.release.Path("ctr"), append(common, args...)...)
	cmd.Env = d.Env()
	return cmd
}

// CtrRun returns "ctr run --rm" of image with a runtime, the daemon's or
// another one, ready to run.
func (d *Daemon) CtrRun(ctx context.Context, r Runtime, id, image string, args ...string) *exec.Cmd {
	return d.CtrRunWith(ctx, r, nil, id, image, args...)
}

// CtrRunWith is CtrRun with additional options of "ctr run".
func (d *Daemon) CtrRunWith(ctx context.Context, r Runtime, options []string, id, image string, args ...string) *exec.Cmd {
	run := []string{
		"run", "--rm", "--runtime", r.Type, "--snapshotter", d.Snapshotter,
		"--fifo-dir", d.fifoDir(),
	}
	run = append(append(run, options...), image, id)
	return d.CtrCmd(ctx, append(run, args...)...)
}
