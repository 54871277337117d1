package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// outputMiB is how much a process writes to measure its stdout, and outputLines how
// many lines.
const (
	outputMiB   = 256
	outputLines = 10000
)

// warm is what a running container does.
type warm struct {
	// execs are the times of "true", from Exec to the end of its output.
	execs series
	// output is the throughput of stdout through its FIFO, in MiB/s.
	output float64
}

// measureWarm measures one container of each runtime, alternating.
func measureWarm(ctx context.Context, d *harness.Daemon, execs int) (_ map[string]*warm, err error) {
	boxes := make(map[string]*harness.Container)
	result := make(map[string]*warm)
	defer func() {
		for _, c := range boxes {
			err = errors.Join(err, c.Remove(context.WithoutCancel(ctx)))
		}
	}()
	runtimes := []harness.Runtime{harness.Runc, harness.Kata}
	for _, runtime := range runtimes {
		c, err := d.Create(ctx, harness.ContainerConfig{Name: "warm", Args: []string{"sleep", "1000"}, Runtime: runtime})
		if err != nil {
			return nil, err
		}
		boxes[runtime.Name], result[runtime.Name] = c, new(warm)
		if err := c.Start(ctx); err != nil {
			return nil, err
		}
	}
	for range execs {
		for _, runtime := range runtimes {
			took, err := timeExec(ctx, boxes[runtime.Name], harness.ExecConfig{Args: []string{"true"}})
			if err != nil {
				return nil, err
			}
			result[runtime.Name].execs = append(result[runtime.Name].execs, milliseconds(took))
		}
	}
	for _, runtime := range runtimes {
		if result[runtime.Name].output, err = measureOutput(ctx, boxes[runtime.Name]); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func timeExec(ctx context.Context, c *harness.Container, cfg harness.ExecConfig) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	start := time.Now()
	p, status, err := c.ExecRun(ctx, cfg)
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	if status != 0 {
		return 0, fmt.Errorf("exec %v: exit status %d: %s", cfg.Args, status, p.Err)
	}
	return took, p.Remove(ctx)
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func measureOutput(ctx context.Context, c *harness.Container) (float64, error) {
	var n counter
	took, err := timeExec(ctx, c, harness.ExecConfig{
		Args:  []string{"dd", "if=/dev/zero", "bs=64k", fmt.Sprintf("count=%d", outputMiB*16)},
		Stdio: harness.Stdio{Stdout: &n},
	})
	if err != nil {
		return 0, err
	}
	if want := counter(outputMiB << 20); n != want {
		return 0, fmt.Errorf("%d bytes of output came, want %d", n, want)
	}
	return outputMiB / took.Seconds(), nil
}

// measureLines measures a process that writes line by line, in lines a second.
func measureLines(ctx context.Context, c *harness.Container) (float64, error) {
	var n counter
	const line = "a line of a program's log, of usual length"
	loop := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "%s"; i=$((i+1)); done`, outputLines, line)
	took, err := timeExec(ctx, c, harness.ExecConfig{Args: []string{"sh", "-c", loop}, Stdio: harness.Stdio{Stdout: &n}})
	if err != nil {
		return 0, err
	}
	if want := counter(outputLines * (len(line) + 1)); n != want {
		return 0, fmt.Errorf("%d bytes of lines came, want %d", n, want)
	}
	return outputLines / took.Seconds(), nil
}
