package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci"
)

// engineFlags are the flags before a command of which engines set at least one: CRI-O
// --root, Podman --log.
var engineFlags = []string{"root", "log", "log-format", "systemd-cgroup", "rootless", "criu"}

// Add adds the commands of an OCI runtime to a program. If the program has a
// command with the same name (exec, list, ps, run), a call goes to the OCI runtime if
// one of engineFlags was given, if it has a flag that only the OCI runtime's has,
// or if its first argument is a container below --root, of which run makes a new one.
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
	if slices.ContainsFunc(engineFlags, app.IsSet) {
		return true
	}
	flags, id := splitArgs(app.Args().Tail(), ours, other) // the first is the command's name
	if slices.ContainsFunc(flags, func(arg string) bool { return findFlag(ours, arg) != nil && findFlag(other, arg) == nil }) {
		return true
	}
	r := &oci.Runtime{Root: app.String("root")}
	return ours.ArgsUsage != "" && ours.Name != runName && r.Has(id)
}

// splitArgs returns the flags before the first argument of a command that is one of two,
// without their values, and that argument, or "". What follows is another program's.
func splitArgs(args []string, commands ...*cli.Command) (flags []string, first string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return flags, strings.Join(args[i+1:min(i+2, len(args))], "")
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			return flags, arg
		}
		flags = append(flags, arg)
		if !strings.Contains(arg, "=") && takesValue(arg, commands) {
			i++
		}
	}
	return flags, ""
}

// takesValue reports whether an argument is a flag whose value is the next argument.
func takesValue(arg string, commands []*cli.Command) bool {
	return slices.ContainsFunc(commands, func(c *cli.Command) bool {
		f, ok := findFlag(c, arg).(cli.DocGenerationFlag)
		return ok && f.TakesValue()
	})
}

// findFlag returns the flag of a command that an argument sets, --NAME, --NAME=VALUE or
// -N, or nil.
func findFlag(c *cli.Command, arg string) cli.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	i := slices.IndexFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return nil
	}
	return c.Flags[i]
}
