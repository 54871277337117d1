package command

import (
	"math"

	"github.com/urfave/cli/v3"
)

// SetConventions gives a command and its subcommands the settings that all
// commands of a program share.
func SetConventions(c *cli.Command) {
	// A pod's annotation may contain commas.
	c.DisableSliceFlagSeparator = true
	if c.StopOnNthArg == nil {
		// The arguments after the name of a container or an image are a command with
		// its own flags.
		c.StopOnNthArg = new(int)
		*c.StopOnNthArg = 1
	}
	for _, sub := range c.Commands {
		SetConventions(sub)
	}
}

// takeFlagsAnywhere lets a command's flags follow its arguments.
func takeFlagsAnywhere(c *cli.Command) {
	c.StopOnNthArg = new(int)
	*c.StopOnNthArg = math.MaxInt
}
