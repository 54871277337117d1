package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/installer"
)

const installDescription = "All files go below /opt/kata, each version into its own directory; pods that run keep the version that they were started\n" +
	"with. containerd is told of the runtime handler by a drop-in (2.x) or a marked block in its config.toml, CRI-O by a\n" +
	"drop-in, and each is restarted if its files changed. In a pod of Kubernetes the node gets the label " + installer.NodeLabel + ".\n" +
	"It can be run again after it was killed or failed: steps that are done are skipped."

const uninstallDescription = "It refuses while pods run, and has then only removed the node's label. It removes the templates of the node's\n" +
	"configuration and ends all spares; in a container it needs the node's PIDs for that."

func installCommand() *cli.Command {
	flags := append(nodeFlags(),
		&cli.StringFlag{Name: "from", Usage: "the `DIRECTORY` with bin and share to install, in place of this program's own"},
		&cli.StringFlag{Name: "engine", Value: "auto", Usage: "the `ENGINE` to register with: containerd, crio, or auto for those on the node"})
	return &cli.Command{
		Name: "install", Usage: "install this version on a node and register it with the node's engines", Description: installDescription,
		Flags: flags, Before: noArguments,
		Action: func(ctx context.Context, c *cli.Command) error {
			from := c.String("from")
			if from == "" {
				from = filepath.Dir(filepath.Dir(executable()))
			}
			o := nodeOptions(c)
			o.From, o.Engine = from, c.String("engine")
			result, err := installer.Install(ctx, o)
			return afterNode(c, result, err)
		},
	}
}

func uninstallCommand() *cli.Command {
	flags := append(nodeFlags(), &cli.BoolFlag{Name: "force", Usage: "uninstall although pods run, which then cannot be cleaned up; leaves templates and spares that cannot be removed"})
	return &cli.Command{
		Name: "uninstall", Usage: "remove from a node what install has installed, and its registration with engines",
		Description: uninstallDescription,
		Flags:       flags, Before: noArguments,
		Action: func(ctx context.Context, c *cli.Command) error {
			o := nodeOptions(c)
			o.Force = c.Bool("force")
			result, err := installer.Uninstall(ctx, o)
			return afterNode(c, result, err)
		},
	}
}

func nodeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "host-root", Value: "/", Usage: "the `DIRECTORY` where the node's root is"},
		&cli.StringFlag{Name: "handler", Value: "kata", Usage: "the runtime handler's `NAME`"},
		&cli.StringFlag{Name: "restart", Value: "auto", Usage: "`WHEN` to restart engines: auto, if their files changed, or never"},
		&cli.StringFlag{Name: "node", Sources: cli.EnvVars("NODE_NAME"), Usage: "the node's `NAME` in Kubernetes, for its label"},
		jsonFlag(),
	}
}

func nodeOptions(c *cli.Command) installer.Options {
	return installer.Options{
		HostRoot: c.String("host-root"), Version: version, Engine: "auto", Handler: c.String("handler"),
		Restart: c.String("restart"), NodeName: c.String("node"),
		Hypervisor: nodeQEMU, Factory: nodeFactory,
		Say: func(line string) { fmt.Fprintln(c.Root().ErrWriter, line) },
	}
}

// afterNode prints what was done, if it is to be printed.
func afterNode(c *cli.Command, result *installer.Result, err error) error {
	if err != nil || !c.Bool("json") {
		return err
	}
	return writeJSON(c.Root().Writer, result)
}
