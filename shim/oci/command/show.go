package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

func stateCommand() *cli.Command {
	return &cli.Command{
		Name: "state", Usage: "write a container's state as JSON", ArgsUsage: "ID",
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			state, err := r.State(ctx, id)
			if err != nil {
				return err
			}
			return writeJSON(c.Root().Writer, state)
		}),
	}
}

// formatFlag chooses between a table and JSON.
func formatFlag() cli.Flag {
	return &cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: "table", Usage: "`FORMAT`: table or json"}
}

func wantJSON(c *cli.Command) (bool, error) {
	switch format := c.String("format"); format {
	case "table":
		return false, nil
	case "json":
		return true, nil
	default:
		return false, fmt.Errorf("--format %q: want table or json: %w", format, errdefs.ErrInvalidArgument)
	}
}

func listCommand() *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "list the containers below --root",
		Flags: []cli.Flag{formatFlag(), &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "only the ids"}},
		Action: withoutArguments(func(ctx context.Context, c *cli.Command) error {
			asJSON, err := wantJSON(c)
			if err != nil {
				return err
			}
			r, err := runtimeOf(c)
			if err != nil {
				return err
			}
			states, err := r.List(ctx)
			switch {
			case c.Bool("quiet"):
				for _, s := range states {
					fmt.Fprintln(c.Root().Writer, s.ID)
				}
			case asJSON:
				err = errors.Join(err, json.NewEncoder(c.Root().Writer).Encode(states))
			default:
				err = errors.Join(err, writeStates(c.Root().Writer, states))
			}
			return err
		}),
	}
}

func writeStates(w io.Writer, states []*oci.State) error {
	table := tabwriter.NewWriter(w, 12, 1, 3, ' ', 0)
	fmt.Fprint(table, "ID\tPID\tSTATUS\tBUNDLE\tCREATED\tOWNER\n")
	for _, s := range states {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", s.ID, s.PID, s.Status, s.Bundle, s.Created.Format(time.RFC3339Nano), s.Owner)
	}
	return table.Flush()
}

func psCommand() *cli.Command {
	return &cli.Command{
		Name: "ps", Usage: "list the host's processes that stand in for a container's", ArgsUsage: "ID [options of ps(1)]",
		Flags: []cli.Flag{formatFlag()},
		Action: onContainer(-1, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			asJSON, err := wantJSON(c)
			if err != nil {
				return err
			}
			pids, err := r.Pids(ctx, id)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.Root().Writer).Encode(pids)
			}
			return psTable(ctx, c, pids)
		}),
	}
}

// psTable writes the lines of ps(1) about these processes.
func psTable(ctx context.Context, c *cli.Command, pids []int) error {
	args := c.Args().Tail()
	if len(args) == 0 {
		args = []string{"-ef"}
	}
	out, err := exec.CommandContext(ctx, "ps", args...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("run ps: %w: %s", err, bytes.TrimSpace(failed.Stderr))
	}
	if err != nil {
		return fmt.Errorf("run ps: %w", err)
	}
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	column := slices.Index(strings.Fields(lines[0]), "PID")
	if column < 0 {
		return fmt.Errorf("ps %s: its output has no column PID", strings.Join(args, " "))
	}
	fmt.Fprintln(c.Root().Writer, lines[0])
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if column >= len(fields) {
			continue
		}
		if pid, err := strconv.Atoi(fields[column]); err == nil && slices.Contains(pids, pid) {
			fmt.Fprintln(c.Root().Writer, line)
		}
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func featuresCommand() *cli.Command {
	return &cli.Command{
		Name: "features", Usage: "write the supported parts of the OCI specification as JSON",
		Action: withoutArguments(func(ctx context.Context, c *cli.Command) error {
			return writeJSON(c.Root().Writer, guestspec.Features())
		}),
	}
}

func specCommand() *cli.Command {
	return &cli.Command{
		Name: "spec", Usage: "write an example config.json",
		Flags: []cli.Flag{&cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Value: ".", Usage: "the `DIRECTORY` for it"}},
		Action: withoutArguments(func(ctx context.Context, c *cli.Command) error {
			f, err := os.OpenFile(filepath.Join(c.String("bundle"), "config.json"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("file config.json exists: remove it first: %w", errdefs.ErrAlreadyExists)
			}
			if err != nil {
				return err
			}
			return errors.Join(writeJSON(f, oci.ExampleSpec()), f.Close())
		}),
	}
}
