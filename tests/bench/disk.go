package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

const (
	// diskMiB is how much each transfer of large blocks moves, smallReads how
	// many small ones are made, and diskRounds how often.
	diskMiB    = 128
	smallReads = 2000
	diskRounds = 3
)

// medium is one place in a container to write to and read from.
type medium struct {
	name, path string
	// write and read are in MiB/s, small in reads per second.
	write, read, small map[string]series
}

// volumes measures the same directory and the same disk of the host, in a
// container of each runtime. With kata the directory is shared by virtio-fs and
// the disk attached by block_device_driver.
type volumes struct{ media []medium }

func newVolumes() *volumes {
	v := &volumes{}
	for _, m := range []medium{{name: "a bind mount", path: "/volume/file"}, {name: "a disk (--device)", path: "/dev/disk"}} {
		m.write, m.read, m.small = map[string]series{}, map[string]series{}, map[string]series{}
		v.media = append(v.media, m)
	}
	return v
}

// measureVolumes alternates between the runtimes, so that other load on the
// machine affects both.
func measureVolumes(ctx context.Context, d *harness.Daemon) (_ *volumes, err error) {
	dir, err := os.MkdirTemp(d.Dir, "volumes")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	loop, err := newLoop(ctx, filepath.Join(dir, "disk"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, exec.Command("losetup", "--detach", loop).Run()) }()
	v := newVolumes()
	for i := range diskRounds {
		for _, runtime := range []harness.Runtime{harness.Runc, harness.Kata} {
			fmt.Fprintf(os.Stderr, "bench: volumes, round %d of %d, %s\n", i+1, diskRounds, runtime.Name)
			if err := v.round(ctx, d, runtime, dir, loop); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// newLoop makes a loop device of a sparse file.
func newLoop(ctx context.Context, file string) (string, error) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return "", err
	}
	if err := os.Truncate(file, diskMiB<<20); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "losetup", "--find", "--show", file).Output()
	if err != nil {
		return "", fmt.Errorf("make a loop device: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// round measures its own container: one disk cannot be in two.
func (v *volumes) round(ctx context.Context, d *harness.Daemon, runtime harness.Runtime, dir, loop string) (err error) {
	c, err := d.Create(ctx, harness.ContainerConfig{
		Name: "volumes", Args: []string{"sleep", "1000"}, Runtime: runtime,
		Spec: []oci.SpecOpts{
			oci.WithMounts([]specs.Mount{{Destination: "/volume", Type: "bind", Source: dir, Options: []string{"rbind", "rw"}}}),
			oci.WithDevices(loop, "/dev/disk", "rwm"),
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx))) }()
	if err := c.Start(ctx); err != nil {
		return err
	}
	for _, m := range v.media {
		if err := m.measure(ctx, c, runtime.Name); err != nil {
			return fmt.Errorf("%s with %s: %w", m.name, runtime.Name, err)
		}
	}
	return nil
}

func (m medium) measure(ctx context.Context, c *harness.Container, runtime string) error {
	for _, t := range []struct {
		into map[string]series
		much float64
		args []string
	}{
		{m.write, diskMiB, []string{"if=/dev/zero", "of=" + m.path, "bs=1M", fmt.Sprintf("count=%d", diskMiB), "conv=fsync"}},
		{m.read, diskMiB, []string{"if=" + m.path, "of=/dev/null", "bs=1M", "iflag=direct"}},
		{m.small, smallReads, []string{"if=" + m.path, "of=/dev/null", "bs=4k", fmt.Sprintf("count=%d", smallReads), "iflag=direct"}},
	} {
		took, err := timeExec(ctx, c, harness.ExecConfig{Args: append([]string{"dd"}, t.args...)})
		if err != nil {
			return err
		}
		t.into[runtime] = append(t.into[runtime], t.much/took.Seconds())
	}
	return nil
}

// benchVolumes measures and prints the volumes alone.
func benchVolumes(ctx context.Context, d *harness.Daemon) error {
	v, err := measureVolumes(ctx, d)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.LogTail(20))
	}
	v.print(os.Stdout)
	fmt.Fprintf(os.Stdout, "\nmade by: go run ./tests/bench -volumes -containerd %s\n", d.Release().Name)
	return nil
}

// print writes the table; a ratio is kata's part of what runc has. The time of
// an exec is in all of it.
func (v *volumes) print(out io.Writer) {
	fmt.Fprintf(out, "\nvolumes, median of %d: dd of %d MiB in 1 MiB blocks (write: with fsync; read: O_DIRECT), %d reads of 4 KiB (O_DIRECT)\n",
		diskRounds, diskMiB, smallReads)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\twrite, MiB/s: runc\tkata\tto runc\tread, MiB/s: runc\tkata\tto runc\tsmall reads/s: runc\tkata\tto runc\t")
	for _, m := range v.media {
		fmt.Fprint(w, m.name)
		for _, s := range []map[string]series{m.write, m.read, m.small} {
			runc, kata := s[harness.Runc.Name].median(), s[harness.Kata.Name].median()
			fmt.Fprintf(w, "\t%.0f\t%.0f\t%.2f", runc, kata, kata/runc)
		}
		fmt.Fprintln(w, "\t")
	}
	_ = w.Flush()
}
