package command

import (
	"context"
	"fmt"
	"os/signal"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/oci"
)

// wholeMachine is why options of CRIU's for what may be saved are accepted.
const wholeMachine = "accepted: the whole machine is saved"

// onePass is why options for several passes are refused.
const onePass = "the machine is saved in one pass, into one file"

// acceptedFlags are options of runc's that have no meaning here: what they allow to
// be saved is.
func acceptedFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "work-path", Usage: "accepted: nothing else is written"},
		&cli.BoolFlag{Name: "tcp-established", Usage: wholeMachine},
		&cli.BoolFlag{Name: "ext-unix-sk", Usage: wholeMachine},
		&cli.BoolFlag{Name: "shell-job", Usage: wholeMachine},
		&cli.BoolFlag{Name: "file-locks", Usage: wholeMachine},
		&cli.StringFlag{Name: "manage-cgroups-mode", Usage: wholeMachine + "; soft, full, strict or ignore", Validator: checkCgroupsMode},
		&cli.StringSliceFlag{Name: "empty-ns", Usage: wholeMachine},
		&cli.BoolFlag{Name: "auto-dedup", Usage: wholeMachine},
	}
}

// checkCgroupsMode refuses what runc refuses.
func checkCgroupsMode(mode string) error {
	switch mode {
	case "", "soft", "full", "strict", "ignore":
		return nil
	}
	return fmt.Errorf("cgroups mode %q: want soft, full, strict or ignore: %w", mode, errdefs.ErrInvalidArgument)
}

func checkpointCommand() *cli.Command {
	return &cli.Command{
		Name: "checkpoint", Usage: "save a container with its machine, and end it", ArgsUsage: "ID",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "image-path", Value: "checkpoint", Usage: "the `DIRECTORY` for the checkpoint, made if it is missing"},
			&cli.BoolFlag{Name: "leave-running", Usage: "keep the container running"},
			&cli.BoolFlag{Name: "tcp-skip-in-flight", Usage: wholeMachine},
			&cli.BoolFlag{Name: "link-remap", Usage: "accepted: a container with an open file that no longer has a name is still refused"},
			&cli.StringFlag{Name: "parent-path", Usage: "refused"},
			&cli.BoolFlag{Name: "pre-dump", Usage: "refused"},
			&cli.BoolFlag{Name: "lazy-pages", Usage: "refused"},
			&cli.StringFlag{Name: "page-server", Usage: "refused"},
			&cli.IntFlag{Name: "status-fd", Usage: "refused"},
		}, acceptedFlags()...),
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			if err := refuse(c, map[string]string{"parent-path": onePass, "pre-dump": onePass, "lazy-pages": onePass, "page-server": onePass, "status-fd": onePass}); err != nil {
				return err
			}
			return r.Checkpoint(ctx, id, c.String("image-path"), c.Bool("leave-running"))
		}),
	}
}

// restoreCommand has no flag --lsm-mount-context: engines that find it restore into pods
// (Podman, CRRuntimeSupportsPodCheckpointRestore in pkg/checkpoint/crutils).
func restoreCommand() *cli.Command {
	return &cli.Command{
		Name: "restore", Usage: "create a container from a checkpoint, and run it", ArgsUsage: "ID",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "image-path", Value: "checkpoint", Usage: "the `DIRECTORY` of the checkpoint"},
			&cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Value: ".", Usage: "the `DIRECTORY` with config.json"},
			&cli.StringFlag{Name: "console-socket", Usage: "the `SOCKET` to which the terminal's master is sent"},
			&cli.StringFlag{Name: "pid-file", Usage: "the `FILE` for the pid that stands for the container"},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "required: the container is never a child of this program"},
			&cli.BoolFlag{Name: "no-pivot", Usage: "accepted: the guest's root file system is its own"},
			&cli.BoolFlag{Name: "no-subreaper", Usage: "accepted: the container is never a child of this program"},
			&cli.BoolFlag{Name: "lazy-pages", Usage: "refused"},
			&cli.StringFlag{Name: "lsm-profile", Usage: "refused"},
		}, acceptedFlags()...),
		Action: onContainer(0, func(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
			const labels = "the guest's kernel has no labels of a security module"
			if err := refuse(c, map[string]string{"lazy-pages": onePass, "lsm-profile": labels}); err != nil {
				return err
			}
			if !c.Bool("detach") {
				return fmt.Errorf("restore container %s: want --detach: %w", id, errdefs.ErrInvalidArgument)
			}
			ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
			defer stop()
			return r.Restore(ctx, id, c.String("image-path"), oci.CreateOptions{
				Bundle: c.String("bundle"), PIDFile: c.String("pid-file"), ConsoleSocket: c.String("console-socket"),
			})
		}),
	}
}
