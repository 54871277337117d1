package main

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/monitor"
	"github.com/katabox/katabox/virtcontainers"
)

const hibernateDescription = "ID is the pod's id, or a prefix of it. While the pod hibernates its processes stand still; its shim, QEMU, network and mounts\n" +
	"stay. The guest's memory is in a file without a name, encrypted with a key that only the shim has: if the shim or the disk\n" +
	"fails, the pod is lost. Whatever needs the guest wakes it: exec, kill, delete, a new container, debug, packets. Statistics\n" +
	"and health checks do not. If this command is interrupted the shim continues: see STATE in kata-runtime pods."

const wakeDescription = "ID is the pod's id, or a prefix of it. The guest's memory is read back from disk, and the pod's processes continue. A pod that\n" +
	"does not hibernate is left alone. If this command is interrupted the shim continues."

func hibernateCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "hibernate", Usage: "move a pod's memory to disk until the pod is needed", ArgsUsage: "ID",
		Description: hibernateDescription,
		Flags:       []cli.Flag{jsonFlag()},
		Action:      h.hibernate,
	}
}

func wakeCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "wake", Usage: "wake a pod that hibernates", ArgsUsage: "ID", Description: wakeDescription,
		Action: func(ctx context.Context, c *cli.Command) error {
			pod, err := h.onePod(c)
			if err != nil {
				return err
			}
			return showing(ctx, c, "wake: pod "+pod.ID, pod.Wake)
		},
	}
}

func (h host) hibernate(ctx context.Context, c *cli.Command) error {
	pod, err := h.onePod(c)
	if err != nil {
		return err
	}
	var saved virtcontainers.Hibernation
	err = showing(ctx, c, "hibernate: save the memory of pod "+pod.ID, func(ctx context.Context) (err error) {
		saved, err = pod.Hibernate(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.Root().Writer, saved)
	}
	_, err = fmt.Fprintf(c.Root().Writer, "%s: %d MiB of memory given back, %d MiB on disk\n", pod.ID, saved.MemoryBytes>>20, saved.ImageBytes>>20)
	return err
}

// onePod finds the pod that the command's only argument names.
func (h host) onePod(c *cli.Command) (monitor.Pod, error) {
	if c.NArg() != 1 {
		return monitor.Pod{}, fmt.Errorf("want one pod's id: see %s --help", c.FullName())
	}
	return monitor.Find(h.records, c.Args().First())
}

// showing shows a step while a shim does it. A signal ends the wait, but not what
// the shim does.
func showing(ctx context.Context, c *cli.Command, step string, do func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	p := newProgress(c.Root().ErrWriter)
	p.step(step)
	err := do(ctx)
	p.end()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: the shim continues", err)
	}
	return err
}
