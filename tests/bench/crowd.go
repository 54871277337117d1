package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"github.com/katabox/katabox/tests/harness"
)

// crowd is what pods that run at the same time cost the host, and how their boots
// went.
type crowd struct {
	name  string
	pss   map[string]int64 // of all pods together, in KiB, by kind of process
	vmm   map[string]int64 // of all QEMUs, in KiB, by kind of memory
	steps map[string]series
}

// benchCrowd measures and prints what n pods of pause and one container cost in
// memory: pods that booted, the same while they hibernate, and pods from a template.
func benchCrowd(ctx context.Context, d *harness.Daemon, n int) (err error) {
	template := &start{name: "template", runtime: harness.Kata, factory: "enable_template = true\n"}
	defer func() { err = errors.Join(err, template.end(context.WithoutCancel(ctx))) }()
	if err := template.begin(ctx, d); err != nil {
		return err
	}
	booted, asleep, err := measureCrowd(ctx, d, n, true)
	if err != nil {
		return fmt.Errorf("pods that boot: %w\n%s", err, d.LogTail(20))
	}
	cloned, _, err := measureCrowd(ctx, template.daemon, n, false)
	if err != nil {
		return fmt.Errorf("pods from a template: %w\n%s", err, template.daemon.LogTail(20))
	}
	booted.name, asleep.name, cloned.name = "boot", "hibernating", "template"
	printCrowd(os.Stdout, n, booted, asleep, cloned)
	printMappings(os.Stdout, n, booted, asleep, cloned)
	fmt.Fprintf(os.Stdout, "\nmade by: go run ./tests/bench -crowd %d -containerd %s\n", n, d.Release().Name)
	return nil
}

// measureCrowd starts n pods together, and removes them after they were measured;
// if they are to hibernate they are measured once more.
func measureCrowd(ctx context.Context, d *harness.Daemon, n int, hibernate bool) (awake, asleep crowd, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*runTimeout)
	defer cancel()
	mark := d.LogSize()
	pods := make([]*harness.Pod, n)
	defer func() {
		for _, p := range pods {
			if p != nil {
				err = errors.Join(err, p.Remove(context.WithoutCancel(ctx)))
			}
		}
	}()
	var all errgroup.Group
	for i := range pods {
		all.Go(func() (err error) {
			pods[i], err = idlePod(ctx, d)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return awake, asleep, err
	}
	if err := awake.weigh(d); err != nil {
		return awake, asleep, err
	}
	if awake.steps, err = bootSteps(d.LogSince(mark, 100_000)); err != nil || !hibernate {
		return awake, asleep, err
	}
	for _, p := range pods {
		cmd := exec.CommandContext(ctx, filepath.Join(d.Layout().Bin(), "kata-runtime"), "hibernate", p.Sandbox.Box.ID())
		if out, err := cmd.CombinedOutput(); err != nil {
			return awake, asleep, fmt.Errorf("kata-runtime hibernate: %w: %s", err, out)
		}
	}
	return awake, asleep, asleep.weigh(d)
}

// weigh reads what the daemon's pods cost in memory.
func (c *crowd) weigh(d *harness.Daemon) (err error) {
	if c.pss, err = pssByKind(d); err == nil {
		c.vmm, err = vmmMappings(d)
	}
	return err
}

// idlePod starts a pod of pause and one container.
func idlePod(ctx context.Context, d *harness.Daemon) (*harness.Pod, error) {
	p, err := d.NewPod(ctx, "crowd")
	if err != nil {
		return nil, err
	}
	c, err := p.Add(ctx, harness.ContainerConfig{Name: "idle", Args: []string{"sleep", "100000"}})
	if err == nil {
		err = c.Start(ctx)
	}
	return p, err
}

// printCrowd prints the memory of one pod, and the medians of its boot's steps in
// which it waits for QEMU and for the agent.
func printCrowd(out io.Writer, n int, all ...crowd) {
	fmt.Fprintf(out, "\n%d pods of pause and one container at once, PSS in MiB for each, and medians of steps in ms\n\n", n)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tQEMU\tshim\tall\tt_vm\tt_agent\tt_total\t")
	for _, c := range all {
		var sum int64
		for _, kib := range c.pss {
			sum += kib
		}
		mib := func(kib int64) float64 { return float64(kib) / 1024 / float64(n) }
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t", c.name, mib(c.pss[harness.KindVMM]), mib(c.pss[harness.KindShim]), mib(sum))
		for _, step := range []string{"t_vm", "t_agent", "t_total"} {
			if len(c.steps[step]) == 0 {
				fmt.Fprint(w, "-\t")
				continue
			}
			fmt.Fprintf(w, "%.0f\t", c.steps[step].median())
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}
