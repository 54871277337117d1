package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/standalone/container"
)

func logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "show what a container has written", ArgsUsage: "NAME",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "follow the output until the container ends"}, storeFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			return named(ctx, c, 1, func(ctx context.Context, m *container.Manager, name string) error {
				return m.Logs(ctx, name, c.Bool("follow"), os.Stdout, os.Stderr)
			})
		},
	}
}

func stopCommand() *cli.Command {
	return &cli.Command{
		Name: "stop", Usage: "stop containers, and kill those that do not stop in time", ArgsUsage: "NAME...",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{&cli.UintFlag{Name: "time", Aliases: []string{"t"}, Usage: "`SECONDS` until it is killed", Value: 10}, storeFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			return named(ctx, c, 0, func(ctx context.Context, m *container.Manager, name string) error {
				return m.Stop(ctx, name, time.Duration(c.Uint("time"))*time.Second)
			})
		},
	}
}

func rmCommand() *cli.Command {
	return &cli.Command{
		Name: "rm", Usage: "remove containers", ArgsUsage: "NAME...",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "running containers, too"},
			&cli.BoolFlag{Name: "images", Usage: "remove the images that no container uses, with their layers"},
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
		return exitWith(0, m.Store.Sweep(true))
	}
	return named(ctx, c, 0, func(ctx context.Context, m *container.Manager, name string) error {
		if err := m.Remove(ctx, name, c.Bool("force")); err != nil || !c.Bool("images") {
			return err
		}
		return m.Store.Sweep(true)
	})
}

// named calls f for each container named in the arguments; at most most of them,
// unless that is 0.
func named(ctx context.Context, c *cli.Command, most int, f func(context.Context, *container.Manager, string) error) error {
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
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	var errs []error
	for _, name := range c.Args().Slice() {
		errs = append(errs, f(ctx, m, name))
	}
	return exitWith(0, errors.Join(errs...))
}

func psCommand() *cli.Command {
	return &cli.Command{
		Name: "ps", Usage: "list containers without an engine, and the host's other pods",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "show containers that have ended, too"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "show names alone"},
			storeFlag(),
		},
		Action: psAction,
	}
}

// psAction lists the containers, and the other pods that run in virtual machines
// here.
func psAction(ctx context.Context, c *cli.Command) error {
	m, err := manager(c)
	if err != nil {
		return exitWith(0, err)
	}
	records, err := m.List()
	if err != nil {
		return exitWith(0, err)
	}
	w := tabwriter.NewWriter(c.Root().Writer, 0, 8, 2, ' ', 0)
	if !c.Bool("quiet") {
		fmt.Fprintln(w, "NAME\tSTATUS\tCREATED\tIMAGE\tCOMMAND\tPORTS")
	}
	for _, r := range records {
		if r.Exited != nil && !c.Bool("all") {
			continue
		}
		if c.Bool("quiet") {
			fmt.Fprintln(w, r.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s ago\t%s\t%s\t%s\n", r.Name, r.State(), age(r.Created), r.Image, short(strings.Join(r.Command, " ")), ports(r))
	}
	if !c.Bool("quiet") {
		if err := listPods(w, m); err != nil {
			return exitWith(0, err)
		}
	}
	return exitWith(0, w.Flush())
}

// listPods lists the other engines' pods.
func listPods(w *tabwriter.Writer, m *container.Manager) error {
	pods, err := m.OtherPods()
	if err != nil || len(pods) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nPODS OF ENGINES\tSTATUS\tSHIM\tVM")
	for _, p := range pods {
		state := "running"
		if !p.Alive {
			state = "dead"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", p.ID, state, p.Shim, p.VM)
	}
	return nil
}

// age returns the time since then, in its largest unit.
func age(then time.Time) string {
	d := time.Since(then)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", int(d.Minutes()))
	}
	return fmt.Sprintf("%d seconds", int(d.Seconds()))
}

// short truncates a command to what fits into a line.
func short(text string) string {
	const most = 30
	if r := []rune(text); len(r) > most {
		return string(r[:most-3]) + "..."
	}
	return text
}

func ports(r *container.Record) string {
	var texts []string
	for _, p := range r.Ports {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}
