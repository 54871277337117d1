package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// bed has two daemons: the pods of one run the liar, those of the other the
// agent.
var bed struct {
	liars, honest *harness.Daemon
	// attacker is the directory of the program that containers attack with.
	attacker string
	playing  counter
}

func TestMain(m *testing.M) {
	harness.Main(m, func() error { return prepare(context.Background()) }, finish)
}

// finish stops the engines.
func finish() error {
	return errors.Join(bed.liars.Stop(context.Background()), bed.honest.Stop(context.Background()))
}

func prepare(ctx context.Context) error {
	layout, err := harness.FindLayout()
	if err != nil {
		return err
	}
	image, err := buildLiar(ctx, layout)
	if err != nil {
		return err
	}
	if err := buildAttacker(ctx, layout); err != nil {
		return err
	}
	releases, err := harness.ReleasesFromEnv(layout)
	if err != nil {
		return err
	}
	options := harness.Options{Layout: layout, Release: releases[0], Runtime: harness.Kata}
	if bed.honest, err = harness.Start(ctx, options); err != nil {
		return err
	}
	options.Kata = image
	if bed.liars, err = harness.Start(ctx, options); err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(bed.liars.KataConfigPath()), "config.d", "50-hostile.toml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return fmt.Errorf("configure the liars: %w", err)
	}
	return nil
}

// settings have the waits for guests that never answer, and the shim's profiles,
// from which its goroutines are counted.
const settings = `
[agent.kata]
kill_timeout = 1
dial_timeout = 40
[runtime]
create_container_timeout = 60
enable_pprof = true
`

// buildLiar builds a guest image with the liar as the agent.
func buildLiar(ctx context.Context, layout harness.Layout) (harness.KataConfig, error) {
	dir := filepath.Join(layout.Build(), "hostile")
	agent := filepath.Join(dir, "agent")
	for _, args := range [][]string{
		{
			"build", "-trimpath", "-buildvcs=false", "-tags", "netgo osusergo seccomp", "-ldflags", "-s -w -buildid= -extldflags -static",
			"-o", agent, "./tests/hostile/liar",
		},
		{"run", "./guest-image", "-agent", agent, "-out", dir},
	} {
		if err := runGo(ctx, layout, "CGO_ENABLED=1", args...); err != nil {
			return harness.KataConfig{}, err
		}
	}
	return harness.KataConfig{Kernel: filepath.Join(dir, "vmlinux"), Initrd: filepath.Join(dir, "initrd.img")}, nil
}

// buildAttacker builds the program that containers attack with.
func buildAttacker(ctx context.Context, layout harness.Layout) error {
	bed.attacker = filepath.Join(layout.Build(), "hostile", "attacker")
	return runGo(ctx, layout, "CGO_ENABLED=0", "build", "-trimpath", "-buildvcs=false", "-o", attackerOnHost(), "./tests/hostile/attacker")
}

func attackerOnHost() string { return filepath.Join(bed.attacker, "attacker") }

func runGo(ctx context.Context, layout harness.Layout, env string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = layout.Root, append(os.Environ(), env)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w: %s", args, err, out)
	}
	return nil
}

// sceneTimeout bounds one test on a busy machine without KVM.
const sceneTimeout = 5 * time.Minute

// answerTimeout bounds every answer, whatever the guest does.
const answerTimeout = 60 * time.Second

// guests are the pods of one daemon whose guests tell the same lie; "" for none.
type guests struct {
	*harness.Daemon
	lie string
}

// tell returns the change of a pause container's spec that has the guest lie.
func (g guests) tell() []oci.SpecOpts {
	if g.lie == "" {
		return nil
	}
	const key = "io.katacontainers.config.hypervisor.kernel_params"
	return []oci.SpecOpts{oci.WithAnnotations(map[string]string{key: "katabox.lie=" + g.lie})}
}

// lying returns the guests that tell a lie, and a test's context, and sets up
// the test's leak check.
func lying(t *testing.T, lie string) (context.Context, guests) {
	t.Helper()
	return lyingFor(t, lie, sceneTimeout)
}

// lyingFor is lying with a test's timeout.
func lyingFor(t *testing.T, lie string, timeout time.Duration) (context.Context, guests) {
	t.Helper()
	d := bed.liars
	bed.playing.begin()
	ctx := d.Test(t, timeout, func(ctx context.Context) error {
		if bed.playing.end() {
			return settled(ctx)
		}
		return nil
	})
	return ctx, guests{d, lie}
}

// settled waits until no pod has left anything.
func settled(ctx context.Context) error {
	return errors.Join(bed.liars.Settled(ctx), bed.honest.Settled(ctx))
}

// counter counts the tests that play: what pods leave can be told only when
// none does.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

// end reports whether no other test plays.
func (c *counter) end() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	return c.n == 0
}
