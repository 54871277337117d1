package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/shim/oci"
	"github.com/katabox/katabox/virtcontainers/printable"
)

// defaultRoot has the containers of engines that do not pass another directory.
const defaultRoot = "/run/kata-runtime"

// podsDir is where shims keep the records of their pods.
const podsDir = "/run/kata-containers/sandboxes"

// category is the heading under which help lists the commands of an OCI runtime.
const category = "as an OCI runtime, for Podman, Docker and CRI-O"

// Flags are the flags that precede an OCI runtime's command; they are runc's.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "root", Local: true, Value: defaultRoot, Usage: "the `DIRECTORY` of containers' state"},
		&cli.StringFlag{Name: "log", Local: true, Usage: "a `FILE` for errors, besides standard error"},
		&cli.StringFlag{Name: "log-format", Local: true, Value: "text", Usage: "`FORMAT` of the log: text or json"},
		&cli.BoolFlag{Name: "debug", Local: true, Usage: "make the shims log debug messages"},
		&cli.BoolFlag{Name: "systemd-cgroup", Local: true, Usage: "accepted: the pod's cgroups are made in the slice, without a scope"},
		&cli.StringFlag{Name: "rootless", Local: true, Value: "auto", Usage: "only auto and false: kata-runtime needs root"},
		&cli.StringFlag{Name: "criu", Local: true, Hidden: true},
		&cli.BoolFlag{Name: "version", Local: true, Aliases: []string{"v"}, Usage: "print the versions"},
	}
}

// Commands are those of an OCI runtime. Their errors have been written when they
// return, and are ExitErrors.
func Commands() []*cli.Command {
	commands := []*cli.Command{
		createCommand(), runCommand(), startCommand(), stateCommand(), killCommand(), deleteCommand(), execCommand(), psCommand(), listCommand(),
		pauseCommand(), resumeCommand(), checkpointCommand(), restoreCommand(), updateCommand(), eventsCommand(), featuresCommand(), specCommand(),
	}
	for _, c := range commands {
		c.Category = category
		c.HideHelpCommand = true
		c.Action = reporting(c.Action)
		c.OnUsageError = reportUsage
		if !othersArguments[c.Name] {
			takeFlagsAnywhere(c)
		}
		SetConventions(c)
	}
	return commands
}

// othersArguments are the commands whose arguments after the id are those of
// another program, flags included. In the others flags may follow the id: runc's
// do.
var othersArguments = map[string]bool{"exec": true, "ps": true}

// ExitError ends the program with a code after everything was printed.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// reporting writes an action's error where the caller of an OCI runtime expects
// it: in the log, as one entry, and on standard error.
func reporting(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		err := checkOCIFlags(c)
		if err == nil {
			err = action(ctx, c)
		}
		var code ExitError
		if err == nil || errors.As(err, &code) {
			return err // a process's exit code, not an error
		}
		writeError(ctx, c, err)
		if coded, ok := errors.AsType[codedError](err); ok {
			return coded.code
		}
		return ExitError(1)
	}
}

// reportUsage does the same with an error in a command's flags.
func reportUsage(ctx context.Context, c *cli.Command, err error, _ bool) error {
	writeError(ctx, c, fmt.Errorf("%s: %w", c.Name, err))
	return ExitError(1)
}

// writeError writes an error, of which a part may be a guest's.
func writeError(ctx context.Context, c *cli.Command, err error) {
	logger := log.G(ctx)
	logger.Logger.SetOutput(c.Root().ErrWriter)
	if name := c.String("log"); name != "" {
		f, openErr := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if openErr != nil {
			err = errors.Join(err, fmt.Errorf("open log: %w", openErr))
		} else {
			defer f.Close()
			logger.Logger.SetOutput(f)
			fmt.Fprintln(c.Root().ErrWriter, printable.Lines(err.Error()))
		}
	}
	if c.String("log-format") == "json" {
		_ = log.SetFormat(log.JSONFormat)
	}
	logger.Error(printable.Lines(err.Error()))
}

func checkOCIFlags(c *cli.Command) error {
	if format := c.String("log-format"); format != "text" && format != "json" {
		return fmt.Errorf("--log-format %q: want text or json", format)
	}
	if rootless := c.String("rootless"); rootless != "auto" && rootless != "false" {
		return fmt.Errorf("--rootless %s: kata-runtime needs root", rootless)
	}
	return nil
}

// runtimeOf returns the OCI runtime that the flags describe.
func runtimeOf(c *cli.Command) (*oci.Runtime, error) {
	program, err := client.FindProgram()
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(c.String("root"))
	if err != nil {
		return nil, fmt.Errorf("find root directory: %w", err)
	}
	return &oci.Runtime{Root: root, Program: program, Pods: podsDir, Debug: c.Bool("debug")}, nil
}

// onContainer makes an action for a command whose first argument is an id; at
// most more arguments may follow.
func onContainer(more int, action func(context.Context, *cli.Command, *oci.Runtime, string) error) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		id := c.Args().First()
		if id == "" {
			return fmt.Errorf("%s: want a container's id: %w", c.Name, errdefs.ErrInvalidArgument)
		}
		if more >= 0 && c.NArg() > 1+more {
			return fmt.Errorf("%s: unexpected argument %q: %w", c.Name, c.Args().Get(1+more), errdefs.ErrInvalidArgument)
		}
		r, err := runtimeOf(c)
		if err != nil {
			return err
		}
		return action(ctx, c, r, id)
	}
}

// WriteVersions answers --version in the lines that engines parse.
func WriteVersions(w io.Writer, version string) {
	fmt.Fprintf(w, "kata-runtime version %s\nspec: %s\n", version, specs.Version)
}

// withoutArguments makes an action for a command that takes no arguments.
func withoutArguments(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		if c.Args().Present() {
			return fmt.Errorf("%s: unexpected argument %q: %w", c.Name, c.Args().First(), errdefs.ErrInvalidArgument)
		}
		return action(ctx, c)
	}
}

// refuse fails if a flag was set that no virtual machine can honour, to another
// value than its default: false, 0 or "".
func refuse(c *cli.Command, reasons map[string]string) error {
	for name, reason := range reasons {
		switch c.Value(name) {
		case nil, false, 0, "":
		default:
			return fmt.Errorf("--%s: %s: %w", name, reason, errdefs.ErrNotImplemented)
		}
	}
	return nil
}
