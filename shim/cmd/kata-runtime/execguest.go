package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/monitor"
	"github.com/katabox/katabox/shim/oci/command"
	standalone "github.com/katabox/katabox/standalone/command"
)

const execDescription = "NAME is a container that kata-runtime run has made. POD is the id of another engine's pod, or a prefix of it: the command then\n" +
	"runs in that pod's guest, beside its containers, under the conditions of kata-runtime debug. Without a command it is a shell."

// ofContainers are exec's flags that have no meaning in a guest.
var ofContainers = []string{"env", "workdir", "user"}

// standaloneCommands returns the commands for containers without an engine. Their
// exec takes a pod's id, too, as Kata Containers' does.
func standaloneCommands(h host) []*cli.Command {
	commands := standalone.Commands()
	for _, c := range commands {
		if c.Name == "exec" {
			c.ArgsUsage = "NAME COMMAND [ARGUMENT...] | POD [COMMAND [ARGUMENT...]]"
			c.Description = execDescription
			c.Action = h.execAction(c.Action)
		}
	}
	return commands
}

// execAction runs a command in a pod's guest if the first argument is a pod's id
// and no container's name; otherwise inContainer does.
func (h host) execAction(inContainer cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		name := c.Args().First()
		if name == "" || standalone.HasContainer(c, name) {
			return inContainer(ctx, c)
		}
		pod, err := monitor.Find(h.records, name)
		if errdefs.IsNotFound(err) {
			err = fmt.Errorf("no container and no running pod is called %s (see kata-runtime ps and pods): %w", name, errdefs.ErrNotFound)
		}
		for _, flag := range ofContainers {
			if err == nil && c.IsSet(flag) {
				err = fmt.Errorf("--%s: %s is a pod, and the command would run in its guest: leave the flag out", flag, name)
			}
		}
		if err != nil {
			return standalone.Failed(err)
		}
		return inGuest(debugPod(ctx, pod, c.Args().Tail(), c.Root().Writer))
	}
}

// inGuest makes an error of the console one of exec's, and leaves the command's
// exit code.
func inGuest(err error) error {
	if _, ended := errors.AsType[command.ExitError](err); ended || err == nil {
		return err
	}
	return standalone.Failed(err)
}
