package command

import (
	"context"
	"os/signal"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/oci"
)

// noDescriptors is why --preserve-fds is refused.
const noDescriptors = "a file that is open on the host cannot be handed to a process in a virtual machine"

// createFlags are the flags of the commands that create a container from a bundle.
func createFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Value: ".", Usage: "the `DIRECTORY` with config.json"},
		&cli.StringFlag{Name: "console-socket", Usage: "the `SOCKET` to which the terminal's master is sent"},
		&cli.StringFlag{Name: "pid-file", Usage: "the `FILE` for the pid that stands for the container"},
		&cli.BoolFlag{Name: "no-pivot", Usage: "accepted: the guest's root file system is its own"},
		&cli.BoolFlag{Name: "no-new-keyring", Usage: "accepted: the guest has its own keyrings"},
		&cli.IntFlag{Name: "preserve-fds", Usage: "refused unless 0"},
	}
}

func createOptions(c *cli.Command) (oci.CreateOptions, error) {
	o := oci.CreateOptions{Bundle: c.String("bundle"), PIDFile: c.String("pid-file"), ConsoleSocket: c.String("console-socket")}
	return o, refuse(c, map[string]string{"preserve-fds": noDescriptors})
}

func createCommand() *cli.Command {
	return &cli.Command{
		Name: "create", Usage: "create a container; start runs its program", ArgsUsage: "ID",
		Flags: createFlags(),
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			o, err := createOptions(c)
			if err != nil {
				return err
			}
			// If the engine cancels, no part of a machine may be left.
			ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
			defer stop()
			return r.Create(ctx, id, o)
		}),
	}
}

// runName is the name of a command whose container does not exist yet.
const runName = "run"

func runCommand() *cli.Command {
	return &cli.Command{
		Name: runName, Usage: "create a container, run it and delete it", ArgsUsage: "ID",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "return when it runs; another command deletes it"},
			&cli.BoolFlag{Name: "keep", Usage: "another command deletes it"},
			&cli.BoolFlag{Name: "no-subreaper", Usage: "accepted: the container does not run below this program"},
		}, createFlags()...),
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			o, err := createOptions(c)
			if err != nil {
				return err
			}
			exit, err := r.Run(ctx, id, oci.RunOptions{CreateOptions: o, Detach: c.Bool("detach"), Keep: c.Bool("keep")})
			if err != nil {
				return err
			}
			return ended(exit)
		}),
	}
}

func startCommand() *cli.Command {
	return &cli.Command{
		Name: "start", Usage: "run a created container", ArgsUsage: "ID",
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error { return r.Start(ctx, id) }),
	}
}

func killCommand() *cli.Command {
	return &cli.Command{
		Name: "kill", Usage: "send a signal to a container, by default SIGTERM", ArgsUsage: "ID [SIGNAL]",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "send it to all processes of the container"}},
		Action: onContainer(1, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			number, err := oci.ParseSignal(c.Args().Get(1))
			if err != nil {
				return err
			}
			return r.Kill(ctx, id, number, c.Bool("all"))
		}),
	}
}

func deleteCommand() *cli.Command {
	return &cli.Command{
		Name: "delete", Usage: "remove a container that has stopped", ArgsUsage: "ID",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "kill the container first; a container that does not exist is not an error"}},
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			return r.Delete(ctx, id, c.Bool("force"))
		}),
	}
}

func pauseCommand() *cli.Command {
	return &cli.Command{
		Name: "pause", Usage: "freeze a container", ArgsUsage: "ID",
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error { return r.Pause(ctx, id) }),
	}
}

func resumeCommand() *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "let a paused container run", ArgsUsage: "ID",
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error { return r.Resume(ctx, id) }),
	}
}
