package command

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci"
	"github.com/katabox/katabox/shim/oci/monitor"
)

// errExecFailed is exec's exit code when its process could not be run, as runc's.
const errExecFailed = ExitError(255)

func execCommand() *cli.Command {
	return &cli.Command{
		Name: "exec", Usage: "run a further process in a container", ArgsUsage: "ID COMMAND [ARGUMENT...] | --process FILE ID",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "process", Aliases: []string{"p"}, Usage: "the process as JSON, in a `FILE`"},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "return when it runs"},
			&cli.StringFlag{Name: "pid-file", Usage: "the `FILE` for the pid that stands for the process"},
			&cli.StringFlag{Name: "console-socket", Usage: "the `SOCKET` to which the terminal's master is sent"},
			&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "with a terminal"},
			&cli.StringFlag{Name: "cwd", Usage: "the working `DIRECTORY`"},
			&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "`NAME=VALUE`; may be repeated"},
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "`UID[:GID]`"},
			&cli.IntSliceFlag{Name: "additional-gids", Aliases: []string{"g"}, Usage: "further `GID`s"},
			&cli.StringSliceFlag{Name: "cap", Aliases: []string{"c"}, Usage: "a further `CAPABILITY`"},
			&cli.BoolFlag{Name: "no-new-privs", Usage: "it cannot gain privileges"},
			&cli.BoolFlag{Name: "ignore-paused", Usage: "refused: a paused container runs nothing"},
			&cli.StringFlag{Name: "process-label", Hidden: true}, &cli.StringFlag{Name: "apparmor", Hidden: true},
			&cli.StringFlag{Name: "cgroup", Hidden: true}, &cli.IntFlag{Name: "preserve-fds", Hidden: true},
		},
		Action: onContainer(-1, runExec),
	}
}

func runExec(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) error {
	exit, err := execProcess(ctx, c, r, id)
	if err != nil {
		return codedError{code: errExecFailed, cause: fmt.Errorf("exec failed: %w", err)}
	}
	return ended(exit)
}

func execProcess(ctx context.Context, c *cli.Command, r *oci.Runtime, id string) (exit monitor.Exit, err error) {
	err = refuse(c, map[string]string{
		"preserve-fds":  noDescriptors,
		"ignore-paused": "a paused container runs nothing",
		"process-label": "the guest has no SELinux",
		"apparmor":      "the guest has no AppArmor",
		"cgroup":        "a process runs in its container's cgroup",
	})
	if err != nil {
		return exit, err
	}
	process, err := processOf(c, r, id)
	if err != nil {
		return exit, err
	}
	return r.Exec(ctx, id, oci.ExecOptions{
		Process: process, Detach: c.Bool("detach"), PIDFile: c.String("pid-file"), ConsoleSocket: c.String("console-socket"),
	})
}

// processOf returns the process that the command line describes: read from a
// file, or the container's own with changes.
func processOf(c *cli.Command, r *oci.Runtime, id string) (*specs.Process, error) {
	if name := c.String("process"); name != "" {
		return readProcess(name)
	}
	args := c.Args().Tail()
	if len(args) == 0 {
		return nil, fmt.Errorf("want a command, or --process (a shell in the guest: kata-runtime debug %s): %w", id, errdefs.ErrInvalidArgument)
	}
	process, err := r.InitProcess(id)
	if err != nil {
		return nil, err
	}
	process.Args, process.Terminal, process.ConsoleSize = args, c.Bool("tty"), nil
	process.Env = append(process.Env, c.StringSlice("env")...)
	if cwd := c.String("cwd"); cwd != "" {
		process.Cwd = cwd
	}
	if c.IsSet("no-new-privs") {
		process.NoNewPrivileges = c.Bool("no-new-privs")
	}
	addCapabilities(process, c.StringSlice("cap"))
	return process, setUser(process, c.String("user"), c.IntSlice("additional-gids"))
}

func readProcess(name string) (*specs.Process, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read process: %w", err)
	}
	var process specs.Process
	if err := json.Unmarshal(data, &process); err != nil {
		return nil, fmt.Errorf("decode process of %s: want an OCI process in JSON: %w: %w", name, err, errdefs.ErrInvalidArgument)
	}
	if len(process.Args) == 0 {
		return nil, fmt.Errorf("process of %s: args is missing or empty: %w", name, errdefs.ErrInvalidArgument)
	}
	return &process, nil
}

func addCapabilities(p *specs.Process, names []string) {
	if len(names) == 0 {
		return
	}
	if p.Capabilities == nil {
		p.Capabilities = new(specs.LinuxCapabilities)
	}
	sets := []*[]string{&p.Capabilities.Bounding, &p.Capabilities.Effective, &p.Capabilities.Permitted}
	if p.Capabilities.Inheritable != nil { // without an inheritable set nothing can be ambient: runc's rule
		sets = append(sets, &p.Capabilities.Ambient)
	}
	for _, set := range sets {
		for _, name := range names {
			if !slices.Contains(*set, name) {
				*set = append(*set, name)
			}
		}
	}
}

// setUser sets UID[:GID] and further groups; only numbers, as with runc.
func setUser(p *specs.Process, user string, gids []int) error {
	for _, gid := range gids {
		if gid < 0 || gid > math.MaxUint32 {
			return fmt.Errorf("--additional-gids %d: want 0 to %d: %w", gid, uint32(math.MaxUint32), errdefs.ErrInvalidArgument)
		}
		p.User.AdditionalGids = append(p.User.AdditionalGids, uint32(gid))
	}
	if user == "" {
		return nil
	}
	uid, gid, both := strings.Cut(user, ":")
	number, err := strconv.ParseUint(uid, 10, 32)
	if err != nil {
		return fmt.Errorf("--user %q: want UID[:GID], as numbers: %w", user, errdefs.ErrInvalidArgument)
	}
	p.User.UID = uint32(number)
	if !both {
		return nil
	}
	if number, err = strconv.ParseUint(gid, 10, 32); err != nil {
		return fmt.Errorf("--user %q: want UID[:GID], as numbers: %w", user, errdefs.ErrInvalidArgument)
	}
	p.User.GID = uint32(number)
	return nil
}
