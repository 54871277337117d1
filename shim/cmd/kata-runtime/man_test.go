package main

import (
	"io"
	"strings"
	"testing"

	docs "github.com/urfave/cli-docs/v3"
	"github.com/urfave/cli/v3"
)

// The manual page in docs/man is generated from the commands.
func TestManual(t *testing.T) {
	app := newApp(io.Discard, io.Discard, host{})
	for _, c := range app.Commands {
		explain(c, app.Name)
	}
	page, err := docs.ToManWithSection(app, 8)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../../../../docs/man/kata-runtime.8", page)
}

// explain puts a command's arguments and description into its usage text, and those of
// its subcommands into theirs: the generator prints no others.
func explain(c *cli.Command, parent string) {
	name := parent + " " + c.Name
	synopsis := []string{name}
	if len(c.Commands) > 0 {
		synopsis = append(synopsis, "COMMAND")
	}
	if len(c.VisibleFlags()) > 0 {
		synopsis = append(synopsis, "[options]")
	}
	if c.ArgsUsage != "" {
		synopsis = append(synopsis, c.ArgsUsage)
	}
	c.UsageText = strings.Join(synopsis, " ")
	if c.Description != "" {
		c.UsageText += "\n\n" + c.Description
	}
	for _, sub := range c.Commands {
		explain(sub, name)
	}
}
