package command

import "github.com/urfave/cli/v3"

// SetConventions gives a command and its subcommands the settings that all
// commands of a program share.
func SetConventions(c *cli.Command) {
	// A pod's annotation may contain commas.
	c.DisableSliceFlagSeparator = true
	// The arguments after the name of a container or an image are a command with
	// its own flags.
	first := 1
	c.StopOnNthArg = &first
	for _, sub := range c.Commands {
		SetConventions(sub)
	}
}
