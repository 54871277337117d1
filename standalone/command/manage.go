package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/standalone/container"
)

func logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the output of a container", ArgsUsage: "NAME",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "follow the output until the container ends"}, storeFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			// It has nothing to clean up, so a signal ends it as it ends any reader.
			return each(ctx, c, 1, func(ctx context.Context, m *container.Manager, name string) error {
				return m.Logs(ctx, name, c.Bool("follow"), os.Stdout, os.Stderr)
			})
		},
	}
}

func stopCommand() *cli.Command {
	return &cli.Command{
		Name: "stop", Usage: "stop containers, and kill those that do not stop in time", ArgsUsage: "NAME...",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{&cli.UintFlag{Name: "time", Aliases: []string{"t"}, Usage: "`SECONDS` to wait before it is killed", Value: 10}, storeFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			if most := uint(math.MaxInt64 / time.Second); c.Uint("time") > most {
				return usage(c, "--time %d: want at most %d", c.Uint("time"), most)
			}
			after := time.Duration(c.Uint("time")) * time.Second
			return named(ctx, c, func(ctx context.Context, m *container.Manager, name string) error {
				defer saySlow(c.Root().ErrWriter, patience, fmt.Sprintf("kata-runtime: stop %s: waiting; it will be killed after %s", name, after))()
				return m.Stop(ctx, name, after)
			})
		},
	}
}

func rmCommand() *cli.Command {
	return &cli.Command{
		Name: "rm", Usage: "remove containers", ArgsUsage: "NAME...",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "remove running containers, too"},
			&cli.BoolFlag{Name: "images", Usage: "remove the images that no container uses, with their layers; waits while another kata-runtime pulls an image or starts a container"},
			storeFlag(),
		},
		Action: rmAction,
	}
}

func rmAction(ctx context.Context, c *cli.Command) error {
	if c.Bool("images") && !c.Args().Present() {
		m, err := manager(c)
		if err != nil {
			return exitWith(0, err)
		}
		ctx, stop := signal.NotifyContext(ctx, heeded(unix.SIGINT, unix.SIGTERM)...)
		defer stop()
		return exitWith(0, rmImages(ctx, c, m))
	}
	return named(ctx, c, func(ctx context.Context, m *container.Manager, name string) error {
		if err := m.Remove(ctx, name, c.Bool("force")); err != nil || !c.Bool("images") {
			return err
		}
		return rmImages(ctx, c, m)
	})
}

// rmImages removes the images that no container uses, once no other kata-runtime pulls
// one or starts a container.
func rmImages(ctx context.Context, c *cli.Command, m *container.Manager) error {
	defer saySlow(c.Root().ErrWriter, patience, "kata-runtime: rm --images: waiting until no image is pulled and no container started")()
	return m.Store.SweepImages(ctx)
}

// named is each for any number of containers, and SIGINT and SIGTERM end the context.
func named(ctx context.Context, c *cli.Command, f func(context.Context, *container.Manager, string) error) error {
	ctx, stop := signal.NotifyContext(ctx, heeded(unix.SIGINT, unix.SIGTERM)...)
	defer stop()
	return each(ctx, c, 0, f)
}

// each calls f for each container named in the arguments; at most most of them,
// unless that is 0.
func each(ctx context.Context, c *cli.Command, most int, f func(context.Context, *container.Manager, string) error) error {
	if !c.Args().Present() {
		return usage(c, "no container named")
	}
	if most > 0 && c.NArg() > most {
		return usage(c, "unexpected argument %q", c.Args().Get(most))
	}
	m, err := manager(c)
	if err != nil {
		return exitWith(0, err)
	}
	var errs []error
	for _, name := range c.Args().Slice() {
		errs = append(errs, f(ctx, m, name))
	}
	return exitWith(0, errors.Join(errs...))
}
