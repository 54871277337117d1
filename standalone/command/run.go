package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/standalone/container"
	"github.com/katabox/katabox/standalone/spec"
	"github.com/katabox/katabox/standalone/usernet"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a container in a virtual machine, without an engine",
		ArgsUsage: "IMAGE [COMMAND [ARGUMENT...]]",
		Description: "IMAGE is a name in a registry, an OCI layout (a directory or a tar), the tar that \"docker save\"\n" +
			"writes, or a directory that is a root file system. docker://, oci:, oci-archive:, docker-archive:\n" +
			"or rootfs: before it says which. The exit code is the command's; 125 is an error of the runtime,\n" +
			"126 a command that cannot be run, 127 a command that does not exist. Signals are passed on to\n" +
			"the command; the third SIGINT (^C) within 3 seconds kills the container.",
		UseShortOptionHandling: true,
		OnUsageError:           usageError,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "interactive", Aliases: []string{"i"}, Usage: "connect standard input; with --detach, keep the command's open and empty"},
			&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give the command a terminal"},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "run the container in the background and print its name"},
			&cli.BoolFlag{Name: "rm", Usage: "remove the container when it ends"},
			&cli.StringFlag{Name: "name", Usage: "the container's `NAME`"},
			&cli.StringFlag{Name: "pull", Usage: "`WHEN` to ask the registry: missing, always, never", Value: pullMissing},
			&cli.StringFlag{Name: "network", Usage: "the `PROGRAM` that provides the network: pasta, slirp4netns, or none (default: the first that works)"},
			storeFlag(),
		}, specFlags()...),
		Action: runAction,
	}
}

func specFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "volume", Aliases: []string{"v"}, Usage: "`HOST:CONTAINER[:ro]`, a bind mount; may be repeated"},
		&cli.StringSliceFlag{Name: "tmpfs", Usage: "`CONTAINER[:OPTIONS]`, an empty file system in memory; may be repeated"},
		&cli.StringSliceFlag{Name: "publish", Aliases: []string{"p"}, Usage: "`[IP:]HOST:CONTAINER[/udp]`, a port; may be repeated"},
		&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "`KEY=VALUE`, or KEY for this process's own value; may be repeated"},
		&cli.StringFlag{Name: "entrypoint", Usage: "`COMMAND` in place of the image's entry point"},
		&cli.StringFlag{Name: "workdir", Aliases: []string{"w"}, Usage: "the working `DIRECTORY`"},
		&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "`USER[:GROUP]`, names or numbers"},
		&cli.StringFlag{Name: "hostname", Usage: "the host `NAME` (default: the container's name)"},
		&cli.BoolFlag{Name: "read-only", Usage: "make the root file system read-only, except for the image's volumes"},
		&cli.StringFlag{Name: "memory", Aliases: []string{"m"}, Usage: "a limit in bytes, or with k, m or g: `512m`"},
		&cli.StringFlag{Name: "cpus", Usage: "a limit in CPUs: `1.5`"},
		&cli.StringSliceFlag{Name: "annotation", Usage: "`KEY=VALUE` for the pod, such as io.katacontainers.config.hypervisor.default_memory=1024; may be repeated"},
	}
}

func runAction(ctx context.Context, c *cli.Command) error {
	if !c.Args().Present() {
		return usage(c, "no image named")
	}
	if c.Bool("detach") && !isDetached() {
		return exitWith(detach(c.Root().Writer))
	}
	return exitWith(runContainer(ctx, c))
}

// runContainer runs a container to its end and returns its exit code.
func runContainer(ctx context.Context, c *cli.Command) (int, error) {
	keepName()
	o, err := runOptions(c)
	if err != nil {
		return 0, err
	}
	m, err := manager(c)
	if err != nil {
		return 0, err
	}
	s := newSession(ctx, o.Warn)
	defer s.close()
	if err := m.SweepDead(s.ctx); err != nil {
		o.Warn(err.Error())
	}
	stdio, err := s.stdio(c)
	if err != nil {
		return 0, err
	}
	ctr, err := create(s.ctx, c, m, o, stdio)
	if err != nil {
		return 0, s.blame(err)
	}
	s.resize(s.ctx, ctr)
	if err := ctr.Start(s.ctx); err != nil {
		return 0, s.blame(err)
	}
	s.attach(ctr)
	if err := errors.Join(s.setRaw(), announce(ctr.Name)); err != nil {
		o.Warn(err.Error())
	}
	code, err := ctr.Wait(s.waiting, stdio)
	return code, s.blame(err)
}

// warner returns a function that prints a warning.
func warner(c *cli.Command) func(string) {
	return func(text string) {
		fmt.Fprintf(c.Root().ErrWriter, "kata-runtime: %s\n", strings.ReplaceAll(text, "\n", "; "))
	}
}

// create finds the image and makes the container. Meanwhile the store's layers
// are kept from being swept.
func create(ctx context.Context, c *cli.Command, m *container.Manager, o container.Options, stdio *container.Stdio) (*container.Container, error) {
	unlock, err := m.Store.Use(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unlock() }() // closes a file that was only locked
	img, err := findImage(ctx, m.Store, c.Args().First(), c.String("pull"), c.Root().ErrWriter)
	if err != nil {
		return nil, err
	}
	return m.Create(ctx, img, o, stdio)
}

// runOptions reads the options from the flags.
func runOptions(c *cli.Command) (container.Options, error) {
	o := container.Options{
		Name: c.String("name"), Remove: c.Bool("rm"), Network: c.String("network"),
		Warn: warner(c),
		Spec: spec.Options{
			Args: c.Args().Tail(), Env: environment(c.StringSlice("env")), User: c.String("user"),
			Hostname: c.String("hostname"), Terminal: c.Bool("tty"), ReadOnly: c.Bool("read-only"),
		},
	}
	if c.IsSet("entrypoint") {
		o.Spec.Entrypoint = strings.Fields(c.String("entrypoint"))
		if o.Spec.Entrypoint == nil {
			o.Spec.Entrypoint = []string{} // "" removes the image's
		}
	}
	for _, text := range c.StringSlice("publish") {
		port, err := usernet.ParsePort(text)
		if err != nil {
			return o, err
		}
		o.Ports = append(o.Ports, port)
	}
	if err := o.Check(); err != nil {
		return o, err
	}
	return o, addSpec(c, &o.Spec)
}

// addSpec parses the flags that can be invalid.
func addSpec(c *cli.Command, o *spec.Options) (err error) {
	if o.Mounts, err = mounts(c); err != nil {
		return err
	}
	if o.Workdir, err = spec.ParseWorkdir(c.String("workdir")); err != nil {
		return err
	}
	if text := c.String("memory"); text != "" {
		if o.Memory, err = spec.ParseMemory(text); err != nil {
			return err
		}
	}
	if text := c.String("cpus"); text != "" {
		if o.CPUs, err = spec.ParseCPUs(text); err != nil {
			return err
		}
	}
	for _, text := range c.StringSlice("annotation") {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return usage(c, "annotation %q: want KEY=VALUE", text)
		}
		if o.Annotations == nil {
			o.Annotations = make(map[string]string)
		}
		o.Annotations[key] = value
	}
	return nil
}

// mounts are those of the flags, in the order in which they are made.
func mounts(c *cli.Command) ([]specs.Mount, error) {
	var all []specs.Mount
	for flag, parse := range map[string]func(string) (specs.Mount, error){"volume": spec.ParseVolume, "tmpfs": spec.ParseTmpfs} {
		for _, text := range c.StringSlice(flag) {
			m, err := parse(text)
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	return spec.OrderMounts(all)
}

// environment adds this process's values to variables that are given by name
// only; a name without a value here is left out.
func environment(variables []string) []string {
	var env []string
	for _, v := range variables {
		if strings.Contains(v, "=") {
			env = append(env, v)
		} else if value, ok := os.LookupEnv(v); ok {
			env = append(env, v+"="+value)
		}
	}
	return env
}
