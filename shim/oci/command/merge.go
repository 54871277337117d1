package command

import (
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci"
)

// Add gives a program the commands of an OCI runtime. Where it has a command
// of the same name (exec, ps), a call is the OCI runtime's if one of its
// arguments is a container below --root, or if --root was given; else it is
// the program's own, whose help people read.
func Add(app *cli.Command) {
	twice := make(map[string]*cli.Command)
	for _, c := range Commands() {
		if app.Command(c.Name) != nil {
			twice[c.Name] = c
			continue
		}
		app.Commands = append(app.Commands, c)
	}
	// The library asks it which command a name means, once the flags before
	// the name are known.
	app.SuggestCommandFunc = func(commands []*cli.Command, name string) string {
		if c, ok := twice[name]; ok && isOurs(app) {
			i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(name) })
			commands[i] = c
		}
		return name
	}
}

func isOurs(app *cli.Command) bool {
	if app.IsSet("root") {
		return true
	}
	r := &oci.Runtime{Root: app.String("root")}
	return slices.ContainsFunc(app.Args().Slice(), r.Has)
}
