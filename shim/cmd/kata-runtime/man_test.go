package main

import (
	"io"
	"strings"
	"testing"

	docs "github.com/urfave/cli-docs/v3"
	"github.com/urfave/cli/v3"
)

// manual is what the page says before it lists the commands.
const manual = `kata-runtime runs containers in virtual machines without an engine, shows and
controls the pods of all engines of this host, and is an OCI runtime for Podman,
Docker and CRI-O. It needs root. **kata-runtime check** prints what this host lacks
to run pods.

    /etc/kata-containers/configuration.toml                  the host's own configuration
    /etc/kata-containers/config.d/*.toml                     single keys of it
    /usr/share/defaults/kata-containers/configuration.toml   the default, every key explained
    /run/kata-containers/                                    records and sockets of running pods
    /run/kata-runtime/                                       containers of the OCI runtime
    /var/lib/katabox/                                        images and containers of kata-runtime run

It exits with 0, or with 1 after an error. run and exec exit with the command's code;
125 is an error of the runtime, 126 a command that cannot be run, 127 a command that
does not exist.`

// The manual page in docs/man is generated from the commands.
func TestManual(t *testing.T) {
	app := newApp(io.Discard, io.Discard, host{})
	app.Description = manual
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
