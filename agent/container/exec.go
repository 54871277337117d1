package container

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/log"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/spawn"
)

// execDefaults is what a container's configuration says of its processes.
type execDefaults struct {
	namespaces   int // CLONE_NEW*
	umask        *uint32
	oomScoreAdj  *int
	rlimits      []spawn.Rlimit // for those that have none
	capabilities *configs.Capabilities
	// byStage is set when the processes take what only libcontainer's stage does.
	byStage bool
}

func newExecDefaults(config *configs.Config) execDefaults {
	d := execDefaults{
		umask: config.Umask, oomScoreAdj: config.OomScoreAdj,
		rlimits: spawnRlimits(config.Rlimits), capabilities: config.Capabilities,
		byStage: config.Seccomp != nil || config.Scheduler != nil || config.IOPriority != nil || config.Personality != nil ||
			config.ProcessLabel != "" || config.AppArmorProfile != "",
	}
	for _, ns := range config.Namespaces {
		d.namespaces |= ns.Syscall()
	}
	// The time namespace is joined by a process that shares its memory with none.
	d.byStage = d.byStage || d.namespaces&unix.CLONE_NEWTIME != 0
	return d
}

func spawnRlimits(list []configs.Rlimit) []spawn.Rlimit {
	var limits []spawn.Rlimit
	for _, l := range list {
		limits = append(limits, spawn.Rlimit{Resource: l.Type, Soft: l.Soft, Hard: l.Hard})
	}
	return limits
}

// Exec starts one more process in the container. It blocks until the process
// executes its program. If the container has ended, or ends meanwhile, it fails with
// ErrFailedPrecondition.
func (c *Container) Exec(spec *specs.Process, stdio Stdio) (*Process, error) {
	if err := checkProcess(spec); err != nil {
		return nil, err
	}
	sayLost(c.id, adjustProcess(spec))
	p, err := c.startExec(spec, stdio)
	if err != nil && c.init.isEnding() {
		// What is missing of the init or refused by its namespaces would read as if
		// the program were not there or the guest had no memory.
		log.L.WithField("container", c.id).WithError(err).Debug("an exec raced with the container's end")
		return nil, c.precondition("exec in", libcontainer.ErrNotRunning, nil)
	}
	return p, err
}

func (c *Container) startExec(spec *specs.Process, stdio Stdio) (*Process, error) {
	if c.needsStage(spec) {
		lib, err := c.stage.view(c.lib, c.init)
		if err != nil {
			return nil, fmt.Errorf("exec in container %s: %w", c.id, err)
		}
		return c.startByStage(lib, spec, stdio, false)
	}
	p, err := c.spawn(spec, stdio)
	if err != nil {
		return nil, fmt.Errorf("unable to start container process: %w", err)
	}
	return p, nil
}

// needsStage reports whether only libcontainer's stage can start a process.
func (c *Container) needsStage(spec *specs.Process) bool {
	return c.execs.byStage || spec.Scheduler != nil || spec.IOPriority != nil
}

// spawn starts a process without a stage.
func (c *Container) spawn(spec *specs.Process, stdio Stdio) (*Process, error) {
	plan, err := c.plan(spec)
	if err != nil {
		return nil, err
	}
	root, err := c.init.openRoot()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if plan.Env, err = environment(spec.Env, func() string { return homeOf(root, plan.UID) }); err != nil {
		return nil, err
	}
	p := &Process{children: c.children}
	if !stdio.Terminal {
		plan.Stdio = [3]*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr}
		if err := c.ownFiles(stdio); err != nil {
			return nil, err
		}
		return p, c.startPlan(p, plan)
	}
	t, err := openTerminal(root, spec.ConsoleSize)
	if err != nil {
		return nil, err
	}
	defer t.slave.Close()
	plan.Terminal, plan.Stdio = true, [3]*os.File{t.slave, t.slave, t.slave}
	err = c.ownTerminal(t)
	if err == nil {
		err = c.startPlan(p, plan)
	}
	if err != nil {
		return nil, errors.Join(err, t.master.Close())
	}
	p.console = t.master
	return p, nil
}

// plan is what the spec says of a process, but for its environment and files.
func (c *Container) plan(spec *specs.Process) (*spawn.Plan, error) {
	rlimits, err := newRlimits(spec.Rlimits)
	if err != nil {
		return nil, err
	}
	plan := &spawn.Plan{
		Target: c.init.fd, Namespaces: c.execs.namespaces,
		Args: spec.Args, Dir: spec.Cwd,
		UID: spec.User.UID, GID: spec.User.GID, Groups: spec.User.AdditionalGids,
		NoNewPrivileges: spec.NoNewPrivileges, Umask: c.execs.umask, OOMScoreAdj: c.execs.oomScoreAdj,
		Rlimits: spawnRlimits(rlimits),
		Keyring: keyringOf(c.id),
	}
	if len(plan.Rlimits) == 0 {
		plan.Rlimits = c.execs.rlimits
	}
	plan.Capabilities, err = c.capabilities(spec.Capabilities)
	return plan, err
}

// startPlan starts the process in the container's cgroup, or, if that has
// processes in cgroups below it alone, in the init's.
func (c *Container) startPlan(p *Process, plan *spawn.Plan) error {
	err := c.startIn(c.cgroupFile(""), p, plan)
	if isFull := errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EOPNOTSUPP); !isFull || !errors.Is(err, spawn.ErrCgroup) {
		return err
	}
	cgroup, findErr := c.initCgroup()
	if findErr != nil {
		return errors.Join(err, findErr)
	}
	return c.startIn(cgroup, p, plan)
}

// startIn starts the process in a cgroup; the reaper spares it.
func (c *Container) startIn(cgroup string, p *Process, plan *spawn.Plan) error {
	dir, err := openCgroup(cgroup)
	if err != nil {
		return err
	}
	defer dir.Close()
	plan.Cgroup = dir
	end := c.children.Begin()
	defer func() { end(p.pid) }()
	pid, err := plan.Start()
	if err != nil {
		return err
	}
	p.pid = pid
	p.child, err = os.FindProcess(pid)
	return err
}

func openCgroup(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// initCgroup is the directory of the cgroup that the init is in.
func (c *Container) initCgroup() (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.init.pid))
	if err != nil {
		return "", fmt.Errorf("find the init's cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok { // cgroups(7), /proc/PID/cgroup
			return cgroupRoot + strings.TrimSuffix(path, "\n"), nil
		}
	}
	return "", fmt.Errorf("find the init's cgroup: process %d has none", c.init.pid)
}
