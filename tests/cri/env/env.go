package env

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/katabox/katabox/tests/cri/images"
	"github.com/katabox/katabox/tests/harness"
)

// Env is a running containerd with CRI.
type Env struct {
	// Daemon is the containerd; its namespace is CRI's.
	Daemon *harness.Daemon

	layout   harness.Layout
	kata     harness.KataConfig
	registry *images.Server
	network  network
	firewall firewall
}

// Options select what an Env runs.
type Options struct {
	Layout harness.Layout
	// Runtime is harness.Kata, with both handlers, or harness.Runc, without
	// "kata", which then need not be built.
	Runtime harness.Runtime
	// Kata varies the runtime's configuration. Its timeouts are long, unless
	// Extra is set.
	Kata harness.KataConfig
	// Debug makes containerd and its shims log at debug level.
	Debug bool
	// Adapt, if set, changes what the harness starts containerd with, before
	// anything is made: its snapshotter (harness.Options.UseBlockfile).
	Adapt func(*harness.Options)
}

// release returns the suite's containerd: the newest, or the last of those that
// harness.EnvReleases names. Debian 12's 1.6 has too old a CRI; what is called
// 1.6 on Debian 13 works.
func release(l harness.Layout) (harness.Release, error) {
	chosen, err := harness.ReleasesFromEnv(l)
	if err != nil {
		return harness.Release{}, err
	}
	return chosen[len(chosen)-1], nil
}

// patience is added to the runtime's configuration: five machines that boot
// concurrently on two busy CPUs without KVM take longer than a user would wait,
// and a timeout would only show how busy the machine is.
const patience = `
[agent.kata]
dial_timeout = 240
health_check_timeout = 120
[runtime]
create_container_timeout = 280
# The suite has containers that must not do what their profile forbids.
disable_guest_seccomp = false
`

// Start starts it all. The caller must Stop it. An error says what to build or
// install.
func Start(ctx context.Context, o Options) (*Env, error) {
	r, err := release(o.Layout)
	if err != nil {
		return nil, err
	}
	if err := Missing(o.Layout); err != nil {
		return nil, fmt.Errorf("start CRI: %w", err)
	}
	if o.Kata.Extra == "" {
		o.Kata.Extra = patience
	}
	e := &Env{layout: o.Layout, kata: o.Kata}
	if e.firewall, err = readFirewall(); err != nil {
		return nil, err
	}
	store, err := images.Build(ctx, filepath.Join(o.Layout.Build(), "cri-images"))
	if err != nil {
		return nil, err
	}
	if e.registry, err = images.Serve(store); err != nil {
		return nil, err
	}
	opts := harness.Options{
		Layout: o.Layout, Release: r, Runtime: o.Runtime, Kata: o.Kata, Debug: o.Debug,
		Namespace: "k8s.io", Plugins: slices.Clone(criPlugins), Prepare: e.prepare,
	}
	if o.Adapt != nil {
		o.Adapt(&opts)
	}
	e.Daemon, err = harness.Start(ctx, opts)
	if err != nil {
		return nil, errors.Join(err, e.registry.Close())
	}
	if err := e.ready(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, e.Daemon.LogTail(20))
		return nil, errors.Join(err, e.Stop(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// ready waits until CRI answers and has its network.
func (e *Env) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		out, err := e.Crictl(ctx, "info", "-o", "go-template", "--template", "{{range .status.conditions}}{{.status}} {{end}}")
		if err == nil && strings.HasPrefix(out, "true true ") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for CRI: %w: conditions %q: %w", ctx.Err(), out, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Endpoint is CRI's address.
func (e *Env) Endpoint() string { return "unix://" + e.Daemon.Socket() }

// CrictlConfig is the path of crictl's configuration, which has the address.
func (e *Env) CrictlConfig() string { return crictlConfig(e.Daemon) }

// CrictlCmd returns crictl with args, ready to run.
func (e *Env) CrictlCmd(ctx context.Context, args ...string) *exec.Cmd {
	all := append([]string{"--config", e.CrictlConfig()}, args...)
	cmd := exec.CommandContext(ctx, CrictlPath(e.layout), all...)
	cmd.Env = e.Daemon.Env()
	return cmd
}

// Crictl runs crictl and returns what it printed, without the last newline. The
// error carries what went to stderr.
func (e *Env) Crictl(ctx context.Context, args ...string) (string, error) {
	out, err := e.CrictlCmd(ctx, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		err = fmt.Errorf("crictl %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

// RemovePods stops and removes every pod.
func (e *Env) RemovePods(ctx context.Context) error {
	_, err := e.Crictl(ctx, "rmp", "--all", "--force")
	return err
}

// Settled waits until nothing of any pod is left while containerd runs on: what
// the harness checks, and the network.
func (e *Env) Settled(ctx context.Context) error {
	return errors.Join(e.Daemon.Settled(ctx), e.networkSettled(ctx))
}

// networkSettled waits up to a minute: a virtual machine's pod is gone when the
// call returns, but the kernel takes a moment to remove links.
func (e *Env) networkSettled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		found, err := e.network.leaks()
		if err != nil || len(found) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left behind in the network:\n  %s", strings.Join(found, "\n  "))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop removes the pods, checks for leftovers, and ends everything. The error
// names leftovers, which are removed anyway.
func (e *Env) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := e.RemovePods(ctx)
	err = errors.Join(err, e.networkSettled(ctx), e.network.remove())
	err = errors.Join(err, e.Daemon.Stop(ctx))
	e.network.forget()
	return errors.Join(err, e.firewall.restore(), e.registry.Close())
}
