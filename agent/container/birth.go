package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/rootfs"
	"github.com/katabox/katabox/agent/spawn"
)

// birth is the start of a container's first process without libcontainer's stage:
//
//	agent                 thread                           process
//	cgroup
//	                      namespaces, root
//	                      fork ────────────────────────>   proc, cgroup (rootfs.Inner)
//	                      mounts, /dev
//	prestart hooks
//	                      pivot_root
//	terminal
//	                      hostname, sysctls, masked paths
//	root, stdio ───────────────────────────────────────>   user, capabilities, program
//
// The thread has the container's mount, IPC and UTS namespaces; it shares the
// agent's memory, and its code has run before. The process has the PID and cgroup
// namespaces too, and its own memory.
type birth struct {
	c      *Container
	config *configs.Config
	spec   *specs.Process
	// dir is the container's directory in the guest.
	dir  string
	plan *spawn.InitPlan

	thread  *nsThread
	root    *rootfs.Root
	top     *os.File // the container's root directory
	init    *spawn.Init
	process *Process
}

// spawnInit starts the container's first process without a stage. On an error
// nothing runs.
func (c *Container) spawnInit(config *configs.Config, spec *specs.Process, stdio Stdio, dir string) (*Process, error) {
	plan, err := c.initPlan(config, spec)
	if err != nil {
		return nil, err
	}
	plan.Terminal = stdio.Terminal
	b := &birth{c: c, config: config, spec: spec, dir: dir, plan: plan, process: &Process{children: c.children}}
	defer b.close()
	err = b.run(stdio)
	if err == nil {
		c.waiting = b.init
		return b.process, nil
	}
	if errors.Is(err, spawn.ErrKilled) {
		err = c.whyKilled(err)
	}
	return nil, errors.Join(fmt.Errorf("unable to start container process: %w", err), b.abandon())
}

func (b *birth) run(stdio Stdio) error {
	if err := b.c.cgroups.Apply(-1); err != nil {
		return fmt.Errorf("unable to apply cgroup configuration: %w", err)
	}
	if err := b.makeProcess(); err != nil {
		return fmt.Errorf("error during container init: %w", err)
	}
	if err := b.enter(stdio); err != nil {
		return fmt.Errorf("error during container init: %w", err)
	}
	return nil
}

// makeProcess makes the namespaces, the process and the mounts.
func (b *birth) makeProcess() (err error) {
	if err := b.c.cgroups.Set(b.config.Cgroups.Resources); err != nil {
		return fmt.Errorf("error setting cgroup config for procHooks process: %w", err)
	}
	if b.thread, err = newThread(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := b.thread.do(b.enterNamespaces); err != nil {
		return err
	}
	if err := b.setEnvironment(); err != nil {
		return err
	}
	targets, err := b.planMounts()
	if err != nil {
		return err
	}
	if err := b.fork(); err != nil {
		return err
	}
	if err := b.init.AwaitMounts(); err != nil {
		return b.mountError(err)
	}
	return b.thread.do(func() error { return b.root.Mount(targets) })
}

// enterNamespaces is called on the thread.
func (b *birth) enterNamespaces() (err error) {
	for _, ns := range b.config.Namespaces {
		kind := ns.Syscall()
		if kind == unix.CLONE_NEWNS || kind == unix.CLONE_NEWCGROUP { // the thread's, and the process's
			continue
		}
		if err := enter(kind, ns.Path); err != nil {
			return err
		}
	}
	b.root, err = rootfs.Open(b.config)
	return err
}

// planMounts makes directories for the mounts that only the process can make, and
// returns them.
func (b *birth) planMounts() (targets []string, err error) {
	for i, m := range rootfs.Inner(b.config) {
		dir := filepath.Join(b.dir, "mount-"+strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make mount point: %w", err)
		}
		targets = append(targets, dir)
		b.plan.Mounts = append(b.plan.Mounts, spawn.Mount{Source: m.Source, Target: dir, Type: m.Type, Flags: m.Flags, Data: m.Data})
	}
	return targets, nil
}

// defaultUmask is that of a container whose spec has none.
const defaultUmask = 0o22

// initPlan is what the spec says of the first process, but for its environment, mounts
// and cgroup.
func (c *Container) initPlan(config *configs.Config, spec *specs.Process) (*spawn.InitPlan, error) {
	process, err := c.plan(spec)
	if err != nil {
		return nil, err
	}
	plan := &spawn.InitPlan{Plan: *process, NewPID: config.Namespaces.IsPrivate(configs.NEWPID)}
	if plan.Umask == nil {
		umask := uint32(defaultUmask)
		plan.Umask = &umask
	}
	return plan, nil
}

// setEnvironment sets the environment, but for a HOME that is known only when the
// mounts are made.
func (b *birth) setEnvironment() (err error) {
	b.plan.Env, err = environment(b.spec.Env, func() string { b.plan.NeedsHome = true; return "" })
	if b.plan.NeedsHome {
		b.plan.Env = b.plan.Env[:len(b.plan.Env)-1]
	}
	return err
}

// fork starts the process in the container's cgroup; the reaper spares it.
func (b *birth) fork() error {
	cgroup, err := openCgroup(b.c.cgroupFile(""))
	if err != nil {
		return err
	}
	defer cgroup.Close()
	b.plan.Cgroup = cgroup
	end := b.c.children.Begin()
	defer func() { end(b.process.pid) }()
	if err := b.thread.do(func() (err error) { b.init, err = b.plan.Fork(); return err }); err != nil {
		return err
	}
	b.process.pid = b.init.Pid()
	b.process.child, err = os.FindProcess(b.process.pid)
	return err
}

// mountError says which of the process's mounts failed.
func (b *birth) mountError(err error) error {
	var failed *spawn.MountError
	inner := rootfs.Inner(b.config)
	if !errors.As(err, &failed) || failed.Index < 0 || failed.Index >= len(inner) {
		return err
	}
	m := inner[failed.Index]
	return fmt.Errorf("error mounting %q to rootfs at %q: %w", m.Source, m.Destination, failed.Err)
}

// enter makes the mounts the container's root, and the process what it is to be.
func (b *birth) enter(stdio Stdio) error {
	if err := b.c.hooks.prestart(b.process.pid); err != nil {
		return err
	}
	if err := b.thread.do(b.enterRoot); err != nil {
		return err
	}
	files, err := b.openStdio(stdio)
	if err != nil {
		return err
	}
	defer files.close()
	if err := b.thread.do(func() error { return b.finish(files) }); err != nil {
		return err
	}
	home := ""
	if b.plan.NeedsHome {
		home = homeOf(b.top, b.spec.User.UID)
	}
	return b.init.Enter(b.top, files.files, home)
}

// enterRoot is called on the thread.
func (b *birth) enterRoot() (err error) {
	if err := b.root.Enter(b.spec.Cwd); err != nil {
		return err
	}
	b.top, err = openTop()
	return err
}

// finish is called on the thread.
func (b *birth) finish(files *initStdio) error {
	if files.terminal != nil {
		if err := b.root.Console(files.terminal.slave); err != nil {
			return err
		}
	}
	if err := (utsNames{host: b.config.Hostname, domain: b.config.Domainname}).set(); err != nil {
		return err
	}
	return b.root.Finish()
}

// close closes what only the start needs.
func (b *birth) close() {
	if b.top != nil {
		_ = b.top.Close()
	}
	if b.root != nil {
		_ = b.root.Close()
	}
	if b.thread != nil {
		b.thread.close()
	}
}

// abandon ends the process, if there is one.
func (b *birth) abandon() error {
	if b.init == nil {
		return nil
	}
	err := b.init.Close()
	if b.process.child != nil {
		_ = b.process.Signal(unix.SIGKILL)
		b.process.Wait()
	}
	if b.process.console != nil {
		err = errors.Join(err, b.process.console.Close())
	}
	return err
}

// whyKilled is the error of a process that was killed, which the memory limit may
// have done.
func (c *Container) whyKilled(err error) error {
	if kills, countErr := c.OOMKills(); countErr == nil && kills > 0 {
		return errors.New("container init was OOM-killed (memory limit too low?)")
	}
	return err
}
