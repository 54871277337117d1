package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci"
)

// maxResources bounds how much of --resources is read, in bytes.
const maxResources = 1 << 20

func updateCommand() *cli.Command {
	return &cli.Command{
		Name: "update", Usage: "change a container's limits", ArgsUsage: "ID",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "resources", Aliases: []string{"r"}, Usage: "OCI resources as JSON, in a `FILE`; - is standard input"},
			&cli.Uint64Flag{Name: "cpu-share", Usage: "CPU weight relative to other containers"},
			&cli.Int64Flag{Name: "cpu-quota", Usage: "`MICROSECONDS` in each period"},
			&cli.Uint64Flag{Name: "cpu-period", Usage: "`MICROSECONDS`"},
			&cli.StringFlag{Name: "cpuset-cpus", Usage: "the `CPUS` it may use"},
			&cli.StringFlag{Name: "cpuset-mems", Usage: "the memory `NODES` it may use"},
			&cli.Uint64Flag{Name: "cpu-burst", Usage: "`MICROSECONDS` of earlier periods' unused quota that a period may use"},
			&cli.Int64Flag{Name: "cpu-idle", Usage: "1: run only when no other container needs the CPU (SCHED_IDLE); 0: run as others"},
			&cli.StringFlag{Name: "memory", Usage: "limit in `BYTES`, also with k, m or g; -1 is none"},
			&cli.StringFlag{Name: "memory-reservation", Usage: "soft limit in `BYTES`"},
			&cli.StringFlag{Name: "memory-swap", Usage: "limit of memory and swap together, in `BYTES`"},
			&cli.Uint16Flag{Name: "blkio-weight", Usage: "block I/O weight relative to other containers, 10 to 1000"},
			&cli.Int64Flag{Name: "pids-limit", Usage: "the most tasks it may have"},
		},
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			resources, err := resourcesOf(c)
			if err != nil {
				return err
			}
			return r.Update(ctx, id, resources)
		}),
	}
}

// resourcesOf returns the resources that update is to set.
func resourcesOf(c *cli.Command) (*specs.LinuxResources, error) {
	if name := c.String("resources"); name != "" {
		return readResources(c, name)
	}
	cpu, memory := new(specs.LinuxCPU), new(specs.LinuxMemory)
	setNumber(c, "cpu-share", &cpu.Shares, c.Uint64)
	setNumber(c, "cpu-quota", &cpu.Quota, c.Int64)
	setNumber(c, "cpu-period", &cpu.Period, c.Uint64)
	setNumber(c, "cpu-burst", &cpu.Burst, c.Uint64)
	setNumber(c, "cpu-idle", &cpu.Idle, c.Int64)
	cpu.Cpus, cpu.Mems = c.String("cpuset-cpus"), c.String("cpuset-mems")
	resources := &specs.LinuxResources{CPU: cpu, Memory: memory}
	for flag, to := range map[string]**int64{"memory": &memory.Limit, "memory-reservation": &memory.Reservation, "memory-swap": &memory.Swap} {
		if text := c.String(flag); text != "" {
			n, err := parseBytes(text)
			if err != nil {
				return nil, fmt.Errorf("--%s %w", flag, err)
			}
			*to = &n
		}
	}
	var pids *int64
	if setNumber(c, "pids-limit", &pids, c.Int64); pids != nil {
		resources.Pids = &specs.LinuxPids{Limit: pids}
	}
	if weight := c.Uint16("blkio-weight"); weight != 0 {
		resources.BlockIO = &specs.LinuxBlockIO{Weight: &weight}
	}
	return resources, nil
}

func setNumber[T any](c *cli.Command, flag string, to **T, get func(string) T) {
	if c.IsSet(flag) {
		value := get(flag)
		*to = &value
	}
}

func readResources(c *cli.Command, name string) (*specs.LinuxResources, error) {
	from := io.Reader(os.Stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read resources: %w", err)
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, maxResources))
	if err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	return oci.ParseResources(data)
}

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name: "events", Usage: "write a container's counters as lines of JSON", ArgsUsage: "ID",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "stats", Usage: "write one line and end"},
			&cli.DurationFlag{Name: "interval", Value: 5 * time.Second, Usage: "the `TIME` between two lines"},
		},
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			if interval := c.Duration("interval"); interval <= 0 {
				return fmt.Errorf("--interval %v: want more than 0: %w", interval, errdefs.ErrInvalidArgument)
			}
			return writeEvents(ctx, c, r, id)
		}),
	}
}

// writeEvents writes events until the container has ended, or one event if only
// one is wanted. A container that had ended before is an error, as with runc.
func writeEvents(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
	for first := true; ; first = false {
		ended, err := writeEvent(ctx, c.Root().Writer, r, id)
		switch {
		case ended && first:
			return err
		case ended:
			return nil
		case err != nil || c.Bool("stats"):
			return err
		}
		select {
		case <-time.After(c.Duration("interval")):
		case <-ctx.Done():
			return nil
		}
	}
}

// writeEvent writes one event. If the container has ended, also meanwhile, the
// error says that.
func writeEvent(ctx context.Context, w io.Writer, r *oci.Runtime, id string) (ended bool, err error) {
	event, err := r.Stats(ctx, id)
	if err == nil {
		return false, json.NewEncoder(w).Encode(event)
	}
	state, stateErr := r.State(ctx, id)
	switch {
	case errdefs.IsNotFound(stateErr):
		return true, stateErr
	case stateErr == nil && state.Status == oci.Stopped:
		return true, fmt.Errorf("container with id %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	}
	return false, err
}
