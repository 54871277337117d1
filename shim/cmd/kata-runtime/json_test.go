package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// withoutJSON are the commands whose output is nothing, that of another program,
// or JSON or a file's format anyway.
var withoutJSON = map[string]string{
	"run": "the container's output", "exec": "a process's output", "logs": "the container's output", "debug": "a process's output",
	"wake": "nothing", "stop": "nothing", "rm": "nothing", "monitor": "nothing", "factory destroy": "nothing", "export-traces": "nothing",
	"direct-volume add": "nothing", "direct-volume remove": "nothing", "iptables set": "nothing",
	"direct-volume stats": "JSON", "completion": "a shell's script",
	"create": "nothing", "start": "nothing", "kill": "nothing", "delete": "nothing", "pause": "nothing", "resume": "nothing", "update": "nothing",
	"checkpoint": "nothing", "restore": "nothing",
	"state": "JSON", "events": "JSON", "features": "JSON", "spec": "a file",
}

// Every command that writes a result writes it as JSON, too: with --json, or,
// those of the OCI runtime, with runc's --format json.
func TestJSONEverywhere(t *testing.T) {
	app := newApp(io.Discard, io.Discard, host{})
	seen := make(map[string]bool)
	var visit func(path []string, c *cli.Command)
	visit = func(path []string, c *cli.Command) {
		for _, sub := range c.Commands {
			visit(append(slices.Clone(path), sub.Name), sub)
		}
		name := strings.Join(path, " ")
		seen[name] = true
		has := slices.ContainsFunc(c.Flags, func(f cli.Flag) bool {
			return slices.Contains(f.Names(), "json") || slices.Contains(f.Names(), "format")
		})
		if reason := withoutJSON[name]; len(c.Commands) == 0 && has == (reason != "") {
			t.Errorf("%s: it can write JSON is %t, and the list of those that cannot says %q", name, has, reason)
		}
	}
	for _, c := range app.Commands {
		visit([]string{c.Name}, c)
	}
	for name := range withoutJSON {
		if !seen[name] && name != "completion" { // the library adds it when the program runs
			t.Errorf("there is no command %s", name)
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d commands were found", len(seen))
	}
}
