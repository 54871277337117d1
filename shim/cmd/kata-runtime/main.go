package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/katabox/katabox/shim/oci/command"
	"github.com/katabox/katabox/shim/oci/monitor"
	standalone "github.com/katabox/katabox/standalone/command"
)

// version is set by the linker.
var version = "development"

// errNoPod ends the program with 1 when all has been said.
var errNoPod = errors.New("a pod cannot run here")

func main() {
	if monitor.IsMonitor() {
		os.Exit(monitor.Main())
	}
	os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr, thisHost()))
}

// run is the whole program; it gives its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, h host) int {
	err := newApp(stdout, stderr, h).RunContext(ctx, args)
	if err == nil {
		return 0
	}
	var code command.ExitError
	if errors.As(err, &code) {
		return int(code)
	}
	if exit, ok := errors.AsType[*standalone.ExitError](err); ok {
		if exit.Err != nil {
			fmt.Fprintf(stderr, "kata-runtime: %v\n", exit.Err)
		}
		return exit.Code
	}
	if !errors.Is(err, errNoPod) {
		fmt.Fprintf(stderr, "kata-runtime: %v\n", err)
	}
	return 1
}

func newApp(stdout, stderr io.Writer, h host) *cli.App {
	return &cli.App{
		Name:    "kata-runtime",
		Usage:   "run containers in virtual machines as an OCI runtime, and operate the Katabox runtime",
		Version: version,
		Writer:  stdout, ErrWriter: stderr,
		HideVersion: true, HideHelpCommand: true,
		// A pod's annotation may have commas in it.
		DisableSliceFlagSeparator: true,
		// An error comes back to run, which writes it once.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageError,
		Action:         noCommand,
		Flags:          command.Flags(),
		Commands: command.Merge(append(standalone.Commands(),
			checkCommand(h), envCommand(h), volumeCommand(h),
			&cli.Command{Name: "version", Usage: "print the version", OnUsageError: usageError, Action: func(c *cli.Context) error {
				fmt.Fprintf(c.App.Writer, "kata-runtime %s\n", version)
				return nil
			}},
		)),
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	return fmt.Errorf("%w: see kata-runtime %s --help", err, c.Command.Name)
}

// noCommand is called without a command, or with an unknown one.
func noCommand(c *cli.Context) error {
	if c.Bool("version") {
		command.WriteVersions(c.App.Writer, version)
		return nil
	}
	if c.Args().Present() {
		return fmt.Errorf("unknown command %q: see kata-runtime --help", c.Args().First())
	}
	return cli.ShowAppHelp(c)
}

// noArguments refuses what is left after the flags.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("unexpected argument %q: see kata-runtime %s --help", c.Args().First(), c.Command.Name)
	}
	return nil
}

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Usage: "the configuration `FILE`, in place of the usual one"}
}

func annotationsFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "annotations", Usage: "a pod's annotation `KEY=VALUE`; may be repeated"}
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "write JSON"}
}
