package command

import "github.com/urfave/cli/v3"

// SetConventions gives a command and those below it what holds for all of a
// program's.
func SetConventions(c *cli.Command) {
	// A pod's annotation may have commas in it.
	c.DisableSliceFlagSeparator = true
	// What follows the name of a container or an image is a command, whose
	// flags are not ours.
	first := 1
	c.StopOnNthArg = &first
	for _, sub := range c.Commands {
		SetConventions(sub)
	}
}
