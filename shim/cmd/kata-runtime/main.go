package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci/command"
	"github.com/katabox/katabox/shim/oci/monitor"
	standalone "github.com/katabox/katabox/standalone/command"
	"github.com/katabox/katabox/virtcontainers/printable"
)

// version is set by the linker.
var version = "development"

// errNoPod makes the program exit with 1 after everything was printed.
var errNoPod = errors.New("a pod cannot run here")

func main() {
	if monitor.IsMonitor() {
		os.Exit(monitor.Main())
	}
	os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr, thisHost()))
}

// run is the whole program; it returns the exit code. Parts of the errors that it
// prints may be a guest's, an image's or a registry's.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, h host) int {
	err := newApp(stdout, stderr, h).Run(ctx, args)
	if err == nil {
		return 0
	}
	var code command.ExitError
	if errors.As(err, &code) {
		return int(code)
	}
	if exit, ok := errors.AsType[*standalone.ExitError](err); ok {
		if exit.Err != nil {
			fmt.Fprintf(stderr, "kata-runtime: %s\n", printable.Lines(exit.Err.Error()))
		}
		return exit.Code
	}
	if !errors.Is(err, errNoPod) {
		fmt.Fprintf(stderr, "kata-runtime: %s\n", printable.Lines(err.Error()))
	}
	return 1
}

func newApp(stdout, stderr io.Writer, h host) *cli.Command {
	app := &cli.Command{
		Name:    "kata-runtime",
		Usage:   "run containers in virtual machines, without an engine or as the OCI runtime of one, and operate Katabox",
		Version: version,
		Writer:  stdout, ErrWriter: stderr,
		HideVersion: true, HideHelpCommand: true,
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: configureCompletion,
		// An error is returned to run, which prints it once.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   usageError,
		Action:         noCommand,
		Flags:          append(command.Flags(), kataFlags()...),
		Before:         checkKataFlags,
		Commands:       append(standaloneCommands(h), checkCommand(h), envCommand(h), volumeCommand(h), timelineCommand(h), factoryCommand(h), podsCommand(h), hibernateCommand(h), wakeCommand(h), logCommand(h), debugCommand(h), iptablesCommand(h), metricsCommand(h), monitorCommand(h), collectCommand(h), exportTracesCommand(), installCommand(), uninstallCommand(), versionCommand()),
	}
	for _, c := range app.Commands {
		setUsageError(c)
	}
	command.Add(app)
	command.SetConventions(app)
	return app
}

func configureCompletion(c *cli.Command) {
	c.Hidden = false
	c.Usage = "write a script that completes commands and flags in a shell"
	command.SetConventions(c)
	setUsageError(c)
}

// setUsageError makes a command, and its subcommands, report wrong flags in one
// line.
func setUsageError(c *cli.Command) {
	if c.OnUsageError == nil {
		c.OnUsageError = usageError
	}
	for _, sub := range c.Commands {
		setUsageError(sub)
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version", Flags: []cli.Flag{jsonFlag()}, Before: noArguments,
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Bool("json") {
				return writeJSON(c.Root().Writer, map[string]string{"version": version, "spec": specs.Version})
			}
			_, err := fmt.Fprintf(c.Root().Writer, "kata-runtime %s\n", version)
			return err
		},
	}
}

func usageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	return fmt.Errorf("%w: see %s --help", err, c.FullName())
}

// noCommand handles a missing or unknown command.
func noCommand(_ context.Context, c *cli.Command) error {
	if c.Bool("version") {
		command.WriteVersions(c.Root().Writer, version)
		return nil
	}
	if c.Bool(showPathsFlag) && !c.Args().Present() {
		showPaths(c)
		return nil
	}
	if c.Args().Present() {
		return fmt.Errorf("unknown command %q: see kata-runtime --help", c.Args().First())
	}
	return cli.ShowRootCommandHelp(c)
}

// noArguments refuses arguments after the flags.
func noArguments(ctx context.Context, c *cli.Command) (context.Context, error) {
	if c.Args().Present() {
		return ctx, fmt.Errorf("unexpected argument %q: see %s --help", c.Args().First(), c.FullName())
	}
	return ctx, nil
}

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Aliases: []string{"kata-config"}, Usage: "the configuration `FILE`, in place of the usual one"}
}

func annotationsFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "annotations", Usage: "a pod's annotation `KEY=VALUE`; may be repeated"}
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "write JSON"}
}
