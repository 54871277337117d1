package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci"
)

// Add adds the commands of an OCI runtime to a program. If the program has a
// command with the same name (exec, list, ps), a call goes to the OCI runtime if
// --root was given, if one of its arguments is a container below --root, or, for
// a command without arguments, if it has a flag that only the OCI runtime's has.
// Otherwise it goes to the program's command, whose help is printed.
func Add(app *cli.Command) {
	twice := make(map[string]*cli.Command)
	for _, c := range Commands() {
		if app.Command(c.Name) != nil {
			twice[c.Name] = c
			continue
		}
		app.Commands = append(app.Commands, c)
	}
	// The library calls it to resolve a command's name, after it has parsed the
	// flags before the name.
	app.SuggestCommandFunc = func(commands []*cli.Command, name string) string {
		c, ok := twice[name]
		if !ok {
			return name
		}
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(name) })
		if isOurs(app, c, commands[i]) {
			commands[i] = c
		}
		return name
	}
}

// isOurs reports whether a call is of the OCI runtime's command, and not of the
// program's other one with its name.
func isOurs(app, ours, other *cli.Command) bool {
	if app.IsSet("root") {
		return true
	}
	args := app.Args().Slice()
	if ours.ArgsUsage == "" {
		return slices.ContainsFunc(args, func(arg string) bool { return hasFlag(ours, arg) && !hasFlag(other, arg) })
	}
	r := &oci.Runtime{Root: app.String("root")}
	return slices.ContainsFunc(args, r.Has)
}

// hasFlag reports whether an argument is a flag of a command: --NAME,
// --NAME=VALUE or -N.
func hasFlag(c *cli.Command, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	if name == arg {
		return false
	}
	name, _, _ = strings.Cut(name, "=")
	return slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}
