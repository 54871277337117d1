package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/virtcontainers/config"
)

const showPathsFlag = "show-default-config-paths"

// kataFlags are flags before a command that Kata Containers' kata-runtime has, too.
func kataFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config", Aliases: []string{"kata-config"}, Local: true, Usage: "the configuration `FILE` of check, env, factory and collect, in place of the usual one"},
		&cli.BoolFlag{Name: showPathsFlag, Aliases: []string{"kata-" + showPathsFlag}, Local: true, Usage: "print the places of the configuration file, of which the first that exists counts"},
	}
}

// checkKataFlags refuses kataFlags before a command that does not read them.
func checkKataFlags(ctx context.Context, c *cli.Command) (context.Context, error) {
	name := c.Args().First()
	sub := c.Command(name)
	switch {
	case sub == nil:
		return ctx, nil
	case c.IsSet("config") && !readsConfig(sub):
		return ctx, fmt.Errorf("--config: the command %s does not read it: want the configuration in KATA_CONF_FILE", name)
	case c.IsSet(showPathsFlag):
		return ctx, fmt.Errorf("--%s: want no command", showPathsFlag)
	}
	return ctx, nil
}

// readsConfig reports whether a command, or one below it, has the flag of configFlag.
func readsConfig(c *cli.Command) bool {
	isConfig := func(f cli.Flag) bool { return slices.Contains(f.Names(), "config") }
	return slices.ContainsFunc(c.Flags, isConfig) || slices.ContainsFunc(c.Commands, readsConfig)
}

// configFile returns the configuration file that the flags name, after the command or
// before it, or "".
func configFile(c *cli.Command) string {
	return cmp.Or(c.String("config"), c.Root().String("config"))
}

// showPaths prints where a configuration file is looked for.
func showPaths(c *cli.Command) {
	for _, place := range config.Places() {
		fmt.Fprintln(c.Root().Writer, place)
	}
}

// acceptedCheckFlags are those of Kata Containers' check that make no difference here:
// check uses no network and prints all that it finds.
func acceptedCheckFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "no-network-checks", Aliases: []string{"n"}, Hidden: true},
		&cli.BoolFlag{Name: "strict", Aliases: []string{"s"}, Hidden: true},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Hidden: true},
	}
}
