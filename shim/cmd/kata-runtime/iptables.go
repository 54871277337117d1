package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/monitor"
	standalone "github.com/katabox/katabox/standalone/command"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/printable"
)

const iptablesDescription = "The rules apply to all containers of the pod, which share one network. The guest image must have the iptables tools, as that of\n" +
	"make guest-image-iptables has. The tools see only rules of their own kind, nft or legacy."

const getDescription = "The rules are printed as iptables-save prints them in the guest: do not trust them."

const setDescription = "FILE has rules in the format of iptables-restore, 1 MiB at most; without FILE they are read from standard input. They replace\n" +
	"the rules in the tables that they name. If one of them is wrong, none applies."

func iptablesCommand(h host) *cli.Command {
	flags := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "sandbox-id", Usage: "the pod's `ID`, or a prefix of it", Required: true},
			&cli.BoolFlag{Name: "v6", Usage: "the rules for IPv6"},
		}
	}
	return &cli.Command{
		Name: "iptables", Usage: "read and set the packet filter rules in a pod's guest", Description: iptablesDescription,
		HideHelpCommand: true, Action: noIPTablesCommand,
		Commands: []*cli.Command{
			{
				Name: "get", Usage: "print the rules", Description: getDescription,
				Flags: append(flags(), jsonFlag()), Before: noArguments, Action: h.getIPTables,
			},
			{
				Name: "set", Usage: "replace the rules", ArgsUsage: "[FILE]", Description: setDescription,
				Flags: flags(), Action: h.setIPTables,
			},
		},
	}
}

func (h host) getIPTables(ctx context.Context, c *cli.Command) error {
	pod, err := monitor.Find(h.records, c.String("sandbox-id"))
	if err != nil {
		return err
	}
	rules, err := pod.IPTables(ctx, c.Bool("v6"))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.Root().Writer, map[string]any{"ipv6": c.Bool("v6"), "rules": string(rules)})
	}
	return writeRules(c.Root().Writer, string(rules), standalone.IsTerminal(c.Root().Writer))
}

// writeRules writes a guest's text as it is, but on a terminal so that it cannot
// control it.
func writeRules(out io.Writer, rules string, terminal bool) error {
	if terminal {
		var shown strings.Builder
		for line := range strings.Lines(rules) {
			shown.WriteString(printable.Line(strings.TrimSuffix(line, "\n")) + "\n")
		}
		rules = shown.String()
	}
	_, err := io.WriteString(out, rules)
	return err
}

func (h host) setIPTables(ctx context.Context, c *cli.Command) error {
	if c.NArg() > 1 {
		return fmt.Errorf("unexpected argument %q: see %s --help", c.Args().Get(1), c.FullName())
	}
	rules, err := readRules(c.Args().First())
	if err != nil {
		return err
	}
	pod, err := monitor.Find(h.records, c.String("sandbox-id"))
	if err != nil {
		return err
	}
	return pod.SetIPTables(ctx, c.Bool("v6"), rules)
}

// readRules reads a file, or the standard input if path is empty.
func readRules(path string) ([]byte, error) {
	in := os.Stdin
	if path != "" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read rules: %w", err)
		}
		defer file.Close()
		in = file
	}
	rules, err := io.ReadAll(io.LimitReader(in, guest.MaxIPTables+1))
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	if len(rules) > guest.MaxIPTables {
		return nil, fmt.Errorf("read rules from %s: there are more than %d bytes", in.Name(), guest.MaxIPTables)
	}
	return rules, nil
}

// noIPTablesCommand handles a missing or unknown command of iptables.
func noIPTablesCommand(_ context.Context, c *cli.Command) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown command %q: want iptables get or set", c.Args().First())
	}
	return cli.ShowSubcommandHelp(c)
}
