package command

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/standalone/container"
	"github.com/katabox/katabox/standalone/spec"
)

func execCommand() *cli.Command {
	return &cli.Command{
		Name: "exec", Usage: "run another command in a container", ArgsUsage: "NAME COMMAND [ARGUMENT...]",
		UseShortOptionHandling: true, OnUsageError: usageError,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "interactive", Aliases: []string{"i"}, Usage: "connect standard input"},
			&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give the command a terminal"},
			&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "`KEY=VALUE`, or KEY for this process's own value; may be repeated"},
			&cli.StringFlag{Name: "workdir", Aliases: []string{"w"}, Usage: "the working `DIRECTORY`"},
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "`USER[:GROUP]`, names (of the container's root file system, without its mounts) or numbers"},
			storeFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			switch c.NArg() {
			case 0:
				return usage(c, "want a container and a command")
			case 1:
				return usage(c, "want a command for container %s (a shell in its guest: kata-runtime debug %[1]s)", c.Args().First())
			}
			return exitWith(execIn(ctx, c))
		},
	}
}

func execIn(ctx context.Context, c *cli.Command) (int, error) {
	m, err := manager(c)
	if err != nil {
		return 0, err
	}
	s := newSession(ctx, nil)
	defer s.close()
	stdio, err := s.stdio(c)
	if err != nil {
		return 0, err
	}
	e, err := startExec(s.ctx, c, m, stdio)
	if err != nil {
		return 0, s.blame(err)
	}
	s.attach(e)
	if err := s.setRaw(); err != nil {
		warner(c)(err.Error())
	}
	code, err := e.Wait(s.waiting, stdio)
	return code, s.blame(err)
}

func startExec(ctx context.Context, c *cli.Command, m *container.Manager, stdio *container.Stdio) (*container.Exec, error) {
	workdir, err := spec.ParseWorkdir(c.String("workdir"))
	if err != nil {
		return nil, err
	}
	return m.StartExec(ctx, c.Args().First(), spec.Options{
		Args: c.Args().Tail(), Env: environment(c.StringSlice("env")), Workdir: workdir,
		User: c.String("user"), Terminal: c.Bool("tty"),
	}, stdio)
}
