package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/cmd/internal/platform"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
)

const factoryDescription = "A template is a guest that has booted and was saved. With enable_template = true in the [factory] table of the\n" +
	"configuration, pods start from the one that fits them, in place of booting. It fits as long as QEMU, kernel, initrd,\n" +
	"the machine's configuration and the host's boot are the same: make a new one after a change."

// factoryTimeout bounds the making of a template. A slow host boots a guest in some
// seconds.
const factoryTimeout = 5 * time.Minute

func factoryCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "factory", Usage: "make, list and remove the templates that pods start from", Description: factoryDescription,
		HideHelpCommand: true, Action: noFactoryCommand,
		Commands: []*cli.Command{
			{
				Name: "init", Usage: "make the template of the configuration, unless it is there",
				Flags: []cli.Flag{configFlag()}, Before: noArguments,
				Action: func(ctx context.Context, c *cli.Command) error { return initFactory(ctx, c, h) },
			},
			{
				Name: "status", Usage: "list the templates",
				Flags: []cli.Flag{configFlag(), jsonFlag()}, Before: noArguments,
				Action: func(_ context.Context, c *cli.Command) error { return factoryStatus(c, h) },
			},
			{
				Name: "destroy", Usage: "remove all templates; pods that were started from them run on",
				Flags: []cli.Flag{configFlag()}, Before: noArguments,
				Action: func(_ context.Context, c *cli.Command) error {
					cfg, err := h.loadConfig(c.String("config"))
					if err != nil {
						return err
					}
					return factory.Store{Dir: cfg.Factory.TemplatePath}.RemoveAll()
				},
			},
		},
	}
}

func initFactory(ctx context.Context, c *cli.Command, h host) error {
	cfg, err := h.loadConfig(c.String("config"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, factoryTimeout)
	defer cancel()
	progress := c.Root().ErrWriter
	key, err := h.makeTemplate(ctx, cfg, func(step string) { fmt.Fprintln(progress, "template:", step) })
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Root().Writer, "%s\n", key)
	if !cfg.Factory.Template {
		fmt.Fprintln(progress, "template: pods do not use it: factory.enable_template is false")
	}
	return nil
}

// makeTemplate makes a template as the shim would start a pod.
func makeTemplate(ctx context.Context, cfg *config.Config, progress func(string)) (factory.Key, error) {
	return virtcontainers.MakeTemplate(ctx, platform.Host(ctx), virtcontainers.Options{Config: cfg}, progress)
}

// factoryReport is what factory status writes.
type factoryReport struct {
	Enabled   bool           `json:"enabled"`
	Path      string         `json:"path"`
	Templates []templateInfo `json:"templates"`
}

type templateInfo struct {
	Key     factory.Key `json:"key"`
	Created time.Time   `json:"created"`
	Bytes   int64       `json:"bytes"`
	Current bool        `json:"current"`
}

func factoryStatus(c *cli.Command, h host) error {
	cfg, err := h.loadConfig(c.String("config"))
	if err != nil {
		return err
	}
	list, err := factory.Store{Dir: cfg.Factory.TemplatePath}.List()
	if err != nil {
		return err
	}
	s := factoryReport{Enabled: cfg.Factory.Template, Path: cfg.Factory.TemplatePath, Templates: []templateInfo{}}
	for _, i := range list {
		s.Templates = append(s.Templates, templateInfo(i))
	}
	if c.Bool("json") {
		return writeJSON(c.Root().Writer, s)
	}
	return s.write(c.Root().Writer)
}

func (s factoryReport) write(w io.Writer) error {
	use := "off"
	if s.Enabled {
		use = "on"
	}
	fmt.Fprintf(w, "enable_template is %s; %d in %s\n", use, len(s.Templates), s.Path)
	if len(s.Templates) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tCREATED\tMIB\tCURRENT")
	for _, t := range s.Templates {
		fmt.Fprintf(table, "%s\t%s\t%d\t%v\n", t.Key, t.Created.Format(time.RFC3339), t.Bytes>>20, t.Current)
	}
	return table.Flush()
}

// noFactoryCommand is called without a command of factory's, or with an unknown one.
func noFactoryCommand(_ context.Context, c *cli.Command) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown command %q: want factory init, status or destroy", c.Args().First())
	}
	return cli.ShowSubcommandHelp(c)
}
