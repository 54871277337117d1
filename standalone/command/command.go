package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/standalone/container"
	"github.com/katabox/katabox/standalone/store"
)

// ExitError ends the program with a code. Err is what to print, or nil for
// nothing.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// exitWith ends a command that ran, or that could not run.
func exitWith(code int, err error) error {
	switch {
	case err == nil && code == 0:
		return nil
	case err == nil:
		return &ExitError{Code: code}
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e
	}
	return &ExitError{Code: container.CodeOf(err), Err: err}
}

// Failed ends a command that could not run.
func Failed(err error) error { return exitWith(0, err) }

// HasContainer reports whether a container of that name is in the store that the
// command's flags name.
func HasContainer(c *cli.Command, name string) bool {
	return store.HasContainer(c.String("store"), name)
}

// storeFlag makes the flag for the store's directory. Each command has it.
func storeFlag() cli.Flag {
	return &cli.StringFlag{Name: "store", Usage: "the `DIRECTORY` of images and containers", Value: store.Root, Sources: cli.EnvVars("KATABOX_STORE")}
}

// manager opens the store that the flags name.
func manager(c *cli.Command) (*container.Manager, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("only root can run containers: %w", errdefs.ErrPermissionDenied)
	}
	root, err := filepath.Abs(c.String("store"))
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s, err := store.Open(root)
	if err != nil {
		return nil, err
	}
	shim, err := client.FindProgram()
	if err != nil {
		return nil, err
	}
	return &container.Manager{Store: s, Shim: shim}, nil
}

// Commands returns all commands of this package.
func Commands() []*cli.Command {
	return []*cli.Command{runCommand(), execCommand(), logsCommand(), psCommand(), stopCommand(), rmCommand()}
}

// usage returns the error for wrong use of a command.
func usage(c *cli.Command, format string, args ...any) error {
	err := fmt.Errorf(format+": see kata-runtime %s --help", append(args, c.Name)...)
	return &ExitError{Code: container.ExitError, Err: fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)}
}

func usageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	return usage(c, "%w", err)
}
