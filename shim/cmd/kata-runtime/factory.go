package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/cmd/internal/platform"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/pool"
)

const factoryDescription = "A template is a guest that was saved after it had booted. With enable_template = true in the [factory] table of the\n" +
	"configuration, pods start from the template that fits them instead of booting. It fits as long as QEMU, kernel, initrd, the\n" +
	"machine's configuration and the host's boot are the same. If a pod finds none, it is made in the background.\n" +
	"\n" +
	"With vm_cache_number = N, N guests are kept running for future pods. These spares have a process each. Missing ones are made\n" +
	"in the background after a pod has started."

func factoryCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "factory", Usage: "make, list and remove the templates and spares that pods start from", Description: factoryDescription,
		HideHelpCommand: true, Action: noFactoryCommand,
		Commands: []*cli.Command{
			{
				Name: "init", Usage: "make the template of the configuration, unless it exists",
				Flags: []cli.Flag{configFlag(), jsonFlag()}, Before: noArguments,
				Action: func(ctx context.Context, c *cli.Command) error { return initFactory(ctx, c, h) },
			},
			{
				Name: "status", Usage: "list the templates and the spares",
				Flags: []cli.Flag{configFlag(), jsonFlag()}, Before: noArguments,
				Action: func(_ context.Context, c *cli.Command) error { return factoryStatus(c, h) },
			},
			{
				Name: "destroy", Usage: "remove all templates and spares; pods that were started from them keep running",
				Flags: []cli.Flag{configFlag()}, Before: noArguments,
				Action: func(_ context.Context, c *cli.Command) error {
					cfg, err := h.loadConfig(configFile(c))
					if err != nil {
						return err
					}
					p := newProgress(c.Root().ErrWriter)
					defer p.end()
					return destroyFactory(cfg, h.pool, p.step)
				},
			},
		},
	}
}

// destroyFactory removes the templates of a configuration's directory, and ends
// the spares of all configurations with that directory. It calls step before each
// part.
func destroyFactory(cfg *config.Config, spares pool.Pool, step func(string)) error {
	dir := cfg.Factory.TemplatePath
	step("template: remove all in " + dir)
	if err := (factory.Store{Dir: dir}).RemoveAll(); err != nil { // and a process that makes a spare
		return err
	}
	step("spares: end all")
	return endSpares(spares, func(i pool.Info) bool { return i.Store == dir })
}

// endSpares ends spares, and removes their directory if it is empty then.
func endSpares(spares pool.Pool, match func(pool.Info) bool) error {
	if err := spares.End(match); err != nil {
		return fmt.Errorf("end spares: %w", err)
	}
	return spares.RemoveEmpty()
}

func initFactory(ctx context.Context, c *cli.Command, h host) error {
	cfg, err := h.loadConfig(configFile(c))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT) // so that nothing is left behind
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, virtcontainers.TemplateTimeout)
	defer cancel()
	p := newProgress(c.Root().ErrWriter)
	key, err := h.makeTemplate(ctx, cfg, func(step string) { p.step("template: " + step) })
	p.end()
	if err != nil {
		return err
	}
	if !cfg.Factory.Template {
		fmt.Fprintln(c.Root().ErrWriter, "template: pods do not use it: factory.enable_template is false")
	}
	if c.Bool("json") {
		return writeJSON(c.Root().Writer, map[string]any{"key": key, "enabled": cfg.Factory.Template})
	}
	_, err = fmt.Fprintf(c.Root().Writer, "%s\n", key)
	return err
}

// makeTemplate makes a template in the way in which the shim starts a pod.
func makeTemplate(ctx context.Context, cfg *config.Config, progress func(string)) (factory.Key, error) {
	return virtcontainers.MakeTemplate(ctx, platform.Host(ctx), cfg, virtcontainers.TemplateOptions{Progress: progress})
}

// factoryReport is what factory status writes.
type factoryReport struct {
	Enabled   bool           `json:"enabled"`
	Path      string         `json:"path"`
	Templates []templateInfo `json:"templates"`
	// Maker is the pid of the process that makes a template now; 0 for none.
	Maker    int           `json:"maker,omitempty"`
	Failures []failureInfo `json:"failures,omitempty"`
	// Wanted is how many spares the configuration asks for, and Spares are those
	// with its directory of templates.
	Wanted uint32      `json:"wanted,omitempty"`
	Spares []spareInfo `json:"spares,omitempty"`
}

type spareInfo struct {
	PID     int        `json:"pid"`
	State   pool.State `json:"state"`
	Key     string     `json:"key"`
	Created time.Time  `json:"created"`
	// Engine and Config are whose pods it is for.
	Engine string `json:"engine,omitempty"`
	Config string `json:"config,omitempty"`
}

type templateInfo struct {
	Key     factory.Key `json:"key"`
	Created time.Time   `json:"created"`
	Used    time.Time   `json:"used"`
	Bytes   int64       `json:"bytes"`
	Current bool        `json:"current"`
	// Config is the configuration file that it was made for.
	Config string `json:"config,omitempty"`
	// Keeper is the process that keeps its memory between pods; 0 for none.
	Keeper int `json:"keeper,omitempty"`
}

// failureInfo is why there is no template, and when pods may have it made again.
type failureInfo struct {
	Key    factory.Key `json:"key"`
	Reason string      `json:"reason"`
	At     time.Time   `json:"at"`
	Times  int         `json:"times"`
	Next   time.Time   `json:"next"`
}

func factoryStatus(c *cli.Command, h host) error {
	cfg, err := h.loadConfig(configFile(c))
	if err != nil {
		return err
	}
	s, err := reportFactory(cfg, h.pool)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.Root().Writer, s)
	}
	return s.write(c.Root().Writer)
}

func reportFactory(cfg *config.Config, spares pool.Pool) (factoryReport, error) {
	store := factory.Store{Dir: cfg.Factory.TemplatePath}
	s := factoryReport{Enabled: cfg.Factory.Template, Path: store.Dir, Templates: []templateInfo{}, Wanted: cfg.Factory.VMs}
	list, err := store.List()
	if err != nil {
		return s, err
	}
	for _, i := range list {
		s.Templates = append(s.Templates, templateInfo{Key: i.Key, Created: i.Created, Used: i.Used.UTC(), Bytes: i.Bytes, Current: i.Current, Config: i.Config, Keeper: i.Keeper})
	}
	failures, err := store.Failures()
	if err != nil {
		return s, err
	}
	for _, f := range failures {
		s.Failures = append(s.Failures, failureInfo{Key: f.Key, Reason: f.Why, At: f.At, Times: f.Times, Next: f.Next()})
	}
	if maker, runs := store.Maker(); runs {
		s.Maker = maker.PID
	}
	all, err := spares.List()
	for _, i := range all {
		if i.Store == store.Dir {
			s.Spares = append(s.Spares, spareInfo{PID: i.Process.PID, State: i.State, Key: i.Key, Created: i.Created, Engine: i.Engine, Config: i.Config})
		}
	}
	return s, err
}

func (s factoryReport) write(w io.Writer) error {
	use := "off"
	if s.Enabled {
		use = "on"
	}
	fmt.Fprintf(w, "enable_template is %s; %d in %s\n", use, len(s.Templates), s.Path)
	if s.Maker != 0 {
		fmt.Fprintf(w, "process %d makes one, or a spare\n", s.Maker)
	}
	for _, t := range s.Templates {
		if t.Keeper != 0 {
			fmt.Fprintf(w, "process %d keeps the memory of %s for the next pods\n", t.Keeper, t.Key)
		}
	}
	for _, f := range s.Failures {
		fmt.Fprintf(w, "%s failed at %s (%d times), and is not tried again by pods before %s: %q\n",
			f.Key, f.At.Format(time.RFC3339), f.Times, f.Next.Format(time.RFC3339), f.Reason)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Templates) > 0 {
		fmt.Fprintln(table, "KEY\tCREATED\tUSED\tMIB\tCURRENT")
	}
	for _, t := range s.Templates {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%v\n", t.Key, t.Created.Format(time.RFC3339), t.Used.Format(time.RFC3339), t.Bytes>>20, t.Current)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return s.writeSpares(w)
}

func (s factoryReport) writeSpares(w io.Writer) error {
	if s.Wanted == 0 && len(s.Spares) == 0 {
		return nil
	}
	fmt.Fprintf(w, "vm_cache_number is %d; spares: %d\n", s.Wanted, len(s.Spares))
	if len(s.Spares) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PID\tSTATE\tKEY\tCREATED\tENGINE")
	for _, i := range s.Spares {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", i.PID, i.State, i.Key, i.Created.Format(time.RFC3339), i.Engine)
	}
	return table.Flush()
}

// noFactoryCommand handles a missing or unknown command of factory.
func noFactoryCommand(_ context.Context, c *cli.Command) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown command %q: want factory init, status or destroy", c.Args().First())
	}
	return cli.ShowSubcommandHelp(c)
}
