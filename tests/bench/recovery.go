package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// loss is a way in which a running container is lost, and what an engine waited
// for until it ran again, in milliseconds.
type loss struct {
	name    string
	runtime harness.Runtime
	lose    func(ctx context.Context, d *harness.Daemon, c *harness.Container) error
	// told is the time until the exit was reported, removed what the removal took
	// then, again a new container's start.
	told, removed, again series
}

// losses are what an engine cannot prevent. The last is a guest whose kernel
// panics.
func losses() []*loss {
	kill := func(kind string) func(context.Context, *harness.Daemon, *harness.Container) error {
		return func(_ context.Context, d *harness.Daemon, _ *harness.Container) error { return d.KillOne(kind) }
	}
	return []*loss{
		{name: "runc: kill -9 of the init", runtime: harness.Runc, lose: func(_ context.Context, _ *harness.Daemon, c *harness.Container) error {
			return syscall.Kill(int(c.Task.Pid()), syscall.SIGKILL)
		}},
		{name: "kill -9 of QEMU", runtime: harness.Kata, lose: kill(harness.KindVMM)},
		{name: "kill -9 of the shim", runtime: harness.Kata, lose: kill(harness.KindShim)},
		{name: "a panic of the guest", runtime: harness.Kata, lose: func(ctx context.Context, _ *harness.Daemon, c *harness.Container) error {
			p, err := c.Exec(ctx, harness.ExecConfig{Args: []string{"sh", "-c", "echo c >/proc/sysrq-trigger"}})
			if err != nil {
				return err
			}
			return p.Start(ctx)
		}},
	}
}

// benchRecovery measures and prints how soon what was lost runs again.
func benchRecovery(ctx context.Context, d *harness.Daemon, rounds int) error {
	all := losses()
	events := d.Record(ctx)
	defer events.Close()
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "bench: recovery, round %d of %d\n", i+1, rounds)
		for _, l := range all {
			if err := l.round(ctx, d, events); err != nil {
				return fmt.Errorf("%s: %w\n%s", l.name, err, d.LogTail(20))
			}
		}
	}
	printRecovery(os.Stdout, all)
	fmt.Fprintf(os.Stdout, "\nmade by: go run ./tests/bench -recovery -n %d -containerd %s\n", rounds, d.Release().Name)
	return nil
}

func (l *loss) round(ctx context.Context, d *harness.Daemon, events *harness.Recorder) error {
	c, err := l.start(ctx, d)
	if err != nil {
		return err
	}
	begun := time.Now()
	lap := func(s *series) {
		now := time.Now()
		*s = append(*s, milliseconds(now.Sub(begun)))
		begun = now
	}
	if err := l.lose(ctx, d, c); err != nil {
		return errors.Join(err, c.Remove(ctx))
	}
	if _, err := events.Await(ctx, c.Box.ID(), "exit"); err != nil {
		return errors.Join(err, c.Remove(ctx))
	}
	lap(&l.told)
	if err := c.Remove(ctx); err != nil {
		return err
	}
	lap(&l.removed)
	if c, err = l.start(ctx, d); err != nil {
		return err
	}
	lap(&l.again)
	return c.Remove(ctx)
}

func (l *loss) start(ctx context.Context, d *harness.Daemon) (*harness.Container, error) {
	c, err := d.Create(ctx, harness.ContainerConfig{Name: "lost", Args: []string{"sleep", "10000"}, Runtime: l.runtime, Spec: []oci.SpecOpts{oci.WithPrivileged}})
	if err != nil {
		return nil, err
	}
	if err := c.Start(ctx); err != nil {
		return nil, errors.Join(err, c.Remove(ctx))
	}
	return c, nil
}

func printRecovery(out io.Writer, all []*loss) {
	fmt.Fprintf(out, "\nwhat was lost runs again, median ms of %d\n", len(all[0].told))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\texit told\tremoved\tstarted again\t")
	for _, l := range all {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t\n", l.name, l.told.median(), l.removed.median(), l.again.median())
	}
	_ = w.Flush()
}
