package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// outputRounds is how often each way's stdout is measured.
const outputRounds = 3

// execWay is one way to run an exec, and what it took.
type execWay struct {
	name string
	c    *harness.Container
	spec func(*specs.Process)
	took series
	// output is how fast its stdout comes through its FIFO, in MiB/s, and lines how
	// many lines come each second, each a write.
	output, lines series
}

// benchExecs measures and prints execs alone.
func benchExecs(ctx context.Context, d *harness.Daemon, rounds int) (err error) {
	ways, err := execWays(ctx, d)
	defer func() {
		for _, w := range ways {
			err = errors.Join(err, w.c.Remove(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return err
	}
	for i := range rounds + 1 { // the first reads the files from disk
		for _, w := range ways {
			took, err := timeExec(ctx, w.c, harness.ExecConfig{Args: []string{"true"}, Spec: w.spec})
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if i > 0 {
				w.took = append(w.took, milliseconds(took))
			}
		}
	}
	for range outputRounds {
		for _, w := range ways {
			speed, err := measureOutput(ctx, w.c)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			lines, err := measureLines(ctx, w.c)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.output, w.lines = append(w.output, speed), append(w.lines, lines)
		}
	}
	printExecs(os.Stdout, ways)
	fmt.Fprintf(os.Stdout, "\nmade by: go run ./tests/bench -execs -n %d -containerd %s\n", rounds, d.Release().Name)
	return nil
}

// execWays starts a container of each peer. In the shim's an exec uses the
// agent's own stage and, with an I/O priority, libcontainer's.
func execWays(ctx context.Context, d *harness.Daemon) ([]*execWay, error) {
	var ways []*execWay
	for _, p := range sharePeers() {
		c, err := d.Create(ctx, harness.ContainerConfig{Name: "execs", Args: []string{"sleep", "10000"}, Runtime: p.runtime, Spec: []oci.SpecOpts{p.spec()}})
		if err != nil {
			return ways, err
		}
		ways = append(ways, &execWay{name: p.name, c: c})
		if err := c.Start(ctx); err != nil {
			return ways, err
		}
		if p.name == "shim" {
			ways = append(ways, &execWay{name: "shim, libcontainer's stage", c: c, spec: func(p *specs.Process) {
				p.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 4}
			}})
		}
	}
	return ways, nil
}

func printExecs(out io.Writer, ways []*execWay) {
	fmt.Fprintf(out, "\nexec of true, ms of %d\n", len(ways[0].took))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmedian\tp90\tto runc\t")
	for _, way := range ways {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t\n", way.name, way.took.median(), way.took.percentile(90), way.took.median()/ways[0].took.median())
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\nstdout through a FIFO, MiB/s, %d MiB at a time\n", outputMiB)
	for _, way := range ways {
		fmt.Fprintf(w, "%s\t%.1f\t%.2f\t\n", way.name, way.output.median(), way.output.median()/ways[0].output.median())
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\na shell's lines through a FIFO, each second, %d at a time\n", outputLines)
	for _, way := range ways {
		fmt.Fprintf(w, "%s\t%.0f\t%.3f\t\n", way.name, way.lines.median(), way.lines.median()/ways[0].lines.median())
	}
	_ = w.Flush()
}
