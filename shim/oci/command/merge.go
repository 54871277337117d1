package command

import (
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci"
)

// Add adds the commands of an OCI runtime to a program. If the program has a
// command with the same name (exec, ps), a call goes to the OCI runtime if one of
// its arguments is a container below --root, or if --root was given; otherwise it
// goes to the program's command, whose help is printed.
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
