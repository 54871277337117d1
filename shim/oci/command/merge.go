package command

import (
	"github.com/urfave/cli/v2"

	"github.com/katabox/katabox/shim/oci"
)

// Merge adds an OCI runtime's commands to others. Where both have a command of
// one name (exec, ps), a call is the OCI runtime's if one of its arguments is a
// container below --root, or --root was given; else it is the other's.
func Merge(others []*cli.Command) []*cli.Command {
	merged := others
	for _, c := range Commands() {
		if i := find(others, c.Name); i >= 0 {
			merged[i] = either(c, others[i])
			continue
		}
		merged = append(merged, c)
	}
	return merged
}

func find(commands []*cli.Command, name string) int {
	for i, c := range commands {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// either is one command out of two. Its help is the other's, which people
// read.
func either(ours, other *cli.Command) *cli.Command {
	both := *other
	both.Flags, both.SkipFlagParsing, both.Before = nil, true, nil
	both.Action = func(c *cli.Context) error {
		chosen := other
		if isOurs(c) {
			chosen = ours
		}
		return chosen.Run(c, append([]string{c.Command.Name}, c.Args().Slice()...)...)
	}
	return &both
}

func isOurs(c *cli.Context) bool {
	if c.IsSet("root") {
		return true
	}
	r := &oci.Runtime{Root: c.String("root")}
	for _, arg := range c.Args().Slice() {
		if r.Has(arg) {
			return true
		}
	}
	return false
}
