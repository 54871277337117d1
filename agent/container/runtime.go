package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	_ "github.com/opencontainers/cgroups/devices" // Without it no device rule can be set.
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/command"
	"github.com/katabox/katabox/agent/rootfs"
	"github.com/katabox/katabox/internal/spans"
)

// Runtime makes containers.
type Runtime struct {
	// StateDir is a directory for the containers' state, one subdirectory
	// each; it is made when missing.
	StateDir string
	Children command.Children
	// Confine restricts what containers can do in the guest, as RefuseVsock does.
	// It is called before each container is created, from any goroutine. nil does
	// nothing.
	Confine func() error
	// LoadModule loads a module of the kernel, for sysctls that it has. nil loads none.
	LoadModule func(name string) error
	// Spans records the parts of each container's creation and start; nil
	// records nothing.
	Spans *spans.Recorder

	hooks      Hooks // see SetHooks
	volumes    podVolumes
	threads    threadLimits
	protection protection
	kernelFS   kernelMounts
}

// Stdio is what a process gets as its stdio. The files stay the caller's.
// With Terminal they must be nil.
type Stdio struct {
	Stdin, Stdout, Stderr *os.File
	Terminal              bool
}

// Create makes a container whose init process is forked and waits for Start.
// spec is changed (see adjust). It blocks until the container's mounts are
// made. On failure nothing is left.
func (r *Runtime) Create(spec *specs.Spec, at Placement, stdio Stdio) (*Container, *Process, error) {
	if err := checkProcess(spec.Process); err != nil {
		return nil, nil, err
	}
	configured := r.Spans.Begin(at.ID, "configure")
	r.confine(at.ID)
	annotations := spec.Annotations
	config, err := r.newConfig(spec, at)
	configured()
	if err != nil {
		return nil, nil, err
	}
	hooks, err := r.newHookRun(at.ID, spec, annotations)
	if err != nil {
		return nil, nil, err
	}
	config.Hooks = hooks.forLibcontainer()
	c, err := r.create(config, spec, at.ID)
	if err != nil {
		hooks.forget()
		return nil, nil, err
	}
	c.hooks, c.spans = hooks, r.Spans
	begun := r.Spans.Begin(at.ID, "init stage")
	init, err := r.startIn(c, config, spec, stdio)
	begun()
	if err != nil {
		err = errors.Join(err, r.abandon(c.lib, at.ID))
		hooks.poststop()
		return nil, nil, err
	}
	return c, init, nil
}

// startIn starts the init process, with the pod's volumes that it has mounted.
func (r *Runtime) startIn(c *Container, config *configs.Config, spec *specs.Spec, stdio Stdio) (*Process, error) {
	volumes, err := r.volumes.enter(spec.Mounts)
	if err != nil {
		return nil, err
	}
	c.leaveVolumes = func(settled func() bool) { r.volumes.leave(volumes, settled) }
	init, err := c.startInit(config, spec.Process, stdio, filepath.Join(r.StateDir, c.id))
	if err != nil {
		c.leaveVolumes(passBarriers)
		return nil, err
	}
	c.fitProtection(c.resources)
	return init, nil
}

// confine confines the guest's containers. A kernel that cannot do it, such as one
// without BTF, is a warning: the containers are still confined by the machine.
func (r *Runtime) confine(id string) {
	if r.Confine == nil {
		return
	}
	if err := r.Confine(); err != nil {
		log.L.WithField("container", id).Warnf("%v: the container can connect to what listens on the host's vsock", err)
	}
}

// create makes a container without any process.
func (r *Runtime) create(config *configs.Config, spec *specs.Spec, id string) (*Container, error) {
	lib, err := libcontainer.Create(r.StateDir, id, config)
	if errors.Is(err, libcontainer.ErrExist) {
		return nil, fmt.Errorf("create container %s: %w", id, errdefs.ErrAlreadyExists)
	}
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", id, err)
	}
	c := &Container{id: id, lib: lib, resources: config.Cgroups.Resources, protection: &r.protection, children: r.Children, cgroup: spec.Linux.CgroupsPath, execs: newExecDefaults(config),
		stage: stage{root: r.StateDir, id: id}, ownPIDs: config.Namespaces.IsPrivate(configs.NEWPID)}
	var freezeErr error
	c.cgroups, err = manager.New(config.Cgroups)
	c.freezer.cgroups, freezeErr = newFreezer(*config.Cgroups)
	if err := errors.Join(err, freezeErr); err != nil {
		return nil, errors.Join(fmt.Errorf("create container %s: %w", id, err), r.abandon(lib, id))
	}
	if err := c.findRoot(config); err != nil {
		return nil, errors.Join(err, r.abandon(lib, id))
	}
	return c, nil
}

// abandon removes a container whose init could not be started.
func (r *Runtime) abandon(lib *libcontainer.Container, id string) error {
	if err := lib.Destroy(); err != nil {
		return errors.Join(fmt.Errorf("remove container %s: %w", id, err),
			os.RemoveAll(filepath.Join(r.StateDir, id)))
	}
	return nil
}

func (r *Runtime) newConfig(spec *specs.Spec, at Placement) (*configs.Config, error) {
	if err := checkSysfs(spec); err != nil {
		return nil, fmt.Errorf("create container %s: %w", at.ID, err)
	}
	netSysctls := adjust(spec, at)
	ipcSysctls, names := takeIPCSysctls(spec.Linux, at), takeUTSNames(spec, at)
	if dropped := dropBindData(spec.Mounts); len(dropped) > 0 {
		log.L.WithField("container", at.ID).Infof("options that a bind mount cannot have were left out: %s", strings.Join(dropped, ", "))
	}
	fitNoswap(spec.Mounts, takesNoswap)
	fitTmpfs(spec.Mounts, spec.Linux.Resources, totalMemory())
	r.kernelFS.provide(spec.Mounts)
	if err := checkSources(spec.Mounts); err != nil {
		return nil, fmt.Errorf("create container %s: %w", at.ID, err)
	}
	if limits := spec.Linux.Resources; limits != nil {
		sayLost(at.ID, fitResources(limits, parentHas))
	}
	if spec.Root == nil || !filepath.IsAbs(spec.Root.Path) {
		return nil, fmt.Errorf("create container %s: spec has no absolute root path: %w", at.ID, errdefs.ErrInvalidArgument)
	}
	// A user namespace that it joins has its mappings read by its own child
	// (runc's internal/userns, GetUserNamespaceMappings), which it waits for.
	end := r.Children.Begin()
	config, err := convert(&specconv.CreateOpts{CgroupName: at.ID, Spec: spec})
	end(0)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w: %w", at.ID, err, errdefs.ErrInvalidArgument)
	}
	weightless(config.Cgroups.Resources)
	undo, err := sysctls{dir: procSys, load: r.LoadModule}.set(netSysctls, "net/")
	if err != nil {
		return nil, err
	}
	undoIPC, err := setIPCSysctls(at.IPC, ipcSysctls)
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	if err := setUTSNames(at.UTS, names); err != nil {
		return nil, errors.Join(err, undoIPC(), undo())
	}
	return config, nil
}

// sayLost tells the operator what a container does not get.
func sayLost(id string, lost []string) {
	if len(lost) > 0 {
		log.L.WithField("container", id).Warnf("not enforced by the guest: %s", strings.Join(lost, ", "))
	}
}

func checkProcess(p *specs.Process) error {
	switch {
	case p == nil:
		return fmt.Errorf("spec has no process: %w", errdefs.ErrInvalidArgument)
	case len(p.Args) == 0:
		return fmt.Errorf("process has no args: %w", errdefs.ErrInvalidArgument)
	case !filepath.IsAbs(p.Cwd):
		return fmt.Errorf("process has no absolute cwd: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// startInit starts the init process. dir is the container's in the guest.
func (c *Container) startInit(config *configs.Config, spec *specs.Process, stdio Stdio, dir string) (*Process, error) {
	var init *Process
	var err error
	if c.needsStage(spec) || rootfs.Unsupported(config, spec.Cwd) != "" {
		config.NoNewKeyring = keysAreUsedUp(c.id)
		init, err = c.stageInit(spec, stdio)
	} else {
		init, err = c.spawnInit(config, spec, stdio, dir)
	}
	if err != nil {
		return nil, err
	}
	if c.init, err = openInit(init.pid); err != nil {
		_ = init.Signal(unix.SIGKILL)
		init.Wait()
		err = errors.Join(err, c.waiting.Close())
		if init.console != nil {
			err = errors.Join(err, init.console.Close())
		}
		return nil, err
	}
	return init, nil
}

// stageInit starts the init process by libcontainer's own stage.
func (c *Container) stageInit(spec *specs.Process, stdio Stdio) (*Process, error) {
	init, err := c.startByStage(c.lib, spec, stdio, true)
	if err != nil {
		return nil, err
	}
	c.waiting = staged{c.lib, init.pid}
	c.stage.known = true
	return init, nil
}

// startByStage starts a process of c by libcontainer's own stage. It must not
// run alongside Destroy.
func (c *Container) startByStage(lib *libcontainer.Container, spec *specs.Process, stdio Stdio, init bool) (*Process, error) {
	lp, err := newProcess(spec)
	if err != nil {
		return nil, err
	}
	lp.Init = init
	lp.LogLevel = strconv.Itoa(int(logrus.GetLevel()))
	var sockets *consoleSockets
	if stdio.Terminal {
		if sockets, err = newConsoleSockets(); err != nil {
			return nil, err
		}
		defer sockets.close()
		lp.ConsoleSocket = sockets.child
	} else {
		if err := c.ownFiles(stdio); err != nil {
			return nil, err
		}
		lp.Stdin, lp.Stdout, lp.Stderr = stdio.Stdin, stdio.Stdout, stdio.Stderr
	}
	p := &Process{child: lp, children: c.children}
	if err := c.fork(p, lib, lp); err != nil {
		return nil, err
	}
	if stdio.Terminal {
		if p.console, err = sockets.receive(); err != nil {
			_ = p.Signal(unix.SIGKILL)
			p.Wait()
			return nil, err
		}
	}
	return p, nil
}

// fork starts the process; the reaper spares it.
func (c *Container) fork(p *Process, lib *libcontainer.Container, lp *libcontainer.Process) error {
	started, err := c.beginStart()
	if err != nil {
		return err
	}
	defer started()
	end := c.children.Begin()
	defer func() { end(p.pid) }()
	if err := lib.Start(lp); err != nil {
		return err // Its text is what runc's users know.
	}
	pid, err := lp.Pid()
	if err != nil {
		return fmt.Errorf("find process: %w", err)
	}
	p.pid = pid
	return nil
}

func (c *Container) findRoot(config *configs.Config) (err error) {
	if c.uid, err = config.HostRootUID(); err != nil {
		return fmt.Errorf("find root of container %s: %w", c.id, err)
	}
	if c.gid, err = config.HostRootGID(); err != nil {
		return fmt.Errorf("find root of container %s: %w", c.id, err)
	}
	return nil
}

// ownFiles makes the container's root the owner of a process's stdio, which only
// the owner of the enclosing user namespace can do.
func (c *Container) ownFiles(stdio Stdio) error {
	if c.uid == 0 && c.gid == 0 {
		return nil
	}
	for _, f := range []*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr} {
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			continue // every user may open /dev/null
		}
		if err := f.Chown(c.uid, c.gid); err != nil {
			return fmt.Errorf("own stdio: %w", err)
		}
	}
	return nil
}
