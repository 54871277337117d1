package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/containerd/containerd/v2/client"

	"github.com/katabox/katabox/tests/harness"
)

// checkpoints is how long a container took, in milliseconds, from its creation to
// its answer, to be saved, and from the creation of one that continues from it.
type checkpoints struct {
	cold, save, restore series
	bytes               int64 // of the last file
}

// benchCheckpoint measures and prints what saving a container costs, and how soon
// another one answers that continues from it.
func benchCheckpoint(ctx context.Context, d *harness.Daemon, rounds int) (err error) {
	qemu, err := d.Layout().FindSavingQEMU()
	if err != nil {
		return err
	}
	own, err := harness.Start(ctx, harness.Options{Layout: d.Layout(), Release: d.Release(), Runtime: harness.Kata, Kata: harness.KataConfig{QEMU: qemu, Virtiofsd: harness.OwnVirtiofs}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Stop(context.WithoutCancel(ctx))) }()
	var all checkpoints
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "bench: checkpoints, round %d of %d\n", i+1, rounds)
		if err := all.round(ctx, own); err != nil {
			return fmt.Errorf("%w\n%s", err, own.LogTail(20))
		}
	}
	fmt.Fprintf(os.Stdout, "\na container's shell until it answers, and its checkpoint (%d MiB), medians of %d in ms\n\n", all.bytes>>20, rounds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "cold\tcheckpoint\tfrom it\tof cold\t")
	fmt.Fprintf(w, "%.0f\t%.0f\t%.0f\t%.2f\t\n", all.cold.median(), all.save.median(), all.restore.median(), all.restore.median()/all.cold.median())
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "\nmade by: go run ./tests/bench -checkpoint -n %d -containerd %s\n", rounds, d.Release().Name)
	return nil
}

func (r *checkpoints) round(ctx context.Context, d *harness.Daemon) (err error) {
	dir, err := os.MkdirTemp("/var/tmp", "kb")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, ms, err := answering(ctx, d, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx))) }()
	r.cold = append(r.cold, ms)
	began := time.Now()
	if _, err := c.Task.Checkpoint(d.Context(ctx), client.WithCheckpointImagePath(dir)); err != nil {
		return err
	}
	r.save = append(r.save, milliseconds(time.Since(began)))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("the checkpoint is the files %v: %w", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		return err
	}
	r.bytes = info.Size()
	copied, ms, err := answering(ctx, d, dir)
	if err != nil {
		return err
	}
	r.restore = append(r.restore, ms)
	return copied.Remove(context.WithoutCancel(ctx))
}

// answering starts a shell, or continues a saved one, and returns how long it took
// to answer, in milliseconds.
func answering(ctx context.Context, d *harness.Daemon, checkpoint string) (c *harness.Container, ms float64, err error) {
	stdin, in := io.Pipe()
	defer in.Close()
	began := time.Now()
	c, err = d.Create(ctx, harness.ContainerConfig{
		Name: "shell", Args: []string{"sh", "-c", "while read line; do echo $line; done; sleep 100000"},
		Stdio: harness.Stdio{Stdin: stdin, KeepStdin: true}, Checkpoint: checkpoint,
	})
	if err != nil {
		return nil, 0, err
	}
	if err = c.Start(ctx); err == nil {
		_, err = io.WriteString(in, "answer\n")
	}
	if err == nil {
		err = c.Out.Await(ctx, "answer")
	}
	if err != nil {
		return nil, 0, errors.Join(err, c.Remove(context.WithoutCancel(ctx)))
	}
	return c, milliseconds(time.Since(began)), nil
}
