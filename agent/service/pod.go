package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/container"
	"github.com/katabox/katabox/agent/files"
	"github.com/katabox/katabox/agent/guest"
	"github.com/katabox/katabox/agent/stream"
	"github.com/katabox/katabox/internal/ctxmutex"
	"github.com/katabox/katabox/internal/spans"
)

// Config has a Pod's dependencies.
type Config struct {
	Runtime Runtime
	Mounter *guest.Mounter
	// Tables are the guest's rules for packets.
	Tables tables
	// RunDir is the agent's directory for the pod, api.GuestRunDir.
	RunDir string
	// Spans counts from the kernel's start; nil records nothing.
	Spans *spans.Recorder
}

// Pod is the guest's pod: its containers and what they share. Its methods may
// be called from any goroutine.
type Pod struct {
	config  Config
	network networkApplier
	machine resources
	disks   storer
	// mounting is held while the pod's storages are mounted.
	mounting ctxmutex.Mutex
	parking  ctxmutex.Mutex // held by Park
	files    *files.Tree
	events   *eventQueue
	watchers sync.WaitGroup
	late     sync.Once // for loadLateDrivers

	mu    sync.Mutex
	tasks map[string]*task
	stage stage
	// filesMounted is set once there is a file system for copies of files.
	filesMounted bool
	// hostname is the one that the host requested last and that was set; empty
	// before the first.
	hostname string
	// first is the container whose namespaces others may join, and pinned their
	// kinds.
	first  string
	pinned []string
}

var _ stream.Finder = (*Pod)(nil)

// NewPod makes a pod without containers.
func NewPod(config Config) *Pod {
	return &Pod{
		config: config, network: newNetwork(config), machine: guest.NewResources(config.Mounter.Modules),
		disks: config.Mounter, mounting: ctxmutex.New(), parking: ctxmutex.New(), files: files.New(filesDir(config)),
		events: newEventQueue(), tasks: map[string]*task{},
	}
}

// Wait blocks until nothing waits for a process any more.
func (p *Pod) Wait() { p.watchers.Wait() }

// nsPath returns where a namespace of the pod is pinned.
func (p *Pod) nsPath(kind string) string { return filepath.Join(p.config.RunDir, "ns", kind) }

// PinNamespaces makes the namespaces that the pod's containers share. It is called
// once, before the host is served.
func (p *Pod) PinNamespaces() error { return guest.PinNamespaces(p.nsPath("")) }

// add reserves a container's id.
func (p *Pod) add(t *task) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.tasks[t.id.String()]; ok {
		return fmt.Errorf("container %s: %w", t.id, errdefs.ErrAlreadyExists)
	}
	p.tasks[t.id.String()] = t
	return nil
}

func (p *Pod) remove(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := t.id.String(); p.tasks[id] == t {
		delete(p.tasks, id)
	}
}

func (p *Pod) task(id string) (*task, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.tasks[id]
	if !ok {
		return nil, fmt.Errorf("container %.140q: %w", id, errdefs.ErrNotFound)
	}
	return t, nil
}

// process finds a container's init (execID empty) or one of its execs.
func (p *Pod) process(id, execID string) (*task, *process, error) {
	t, err := p.task(id)
	if err != nil {
		return nil, nil, err
	}
	proc, err := t.process(execID)
	return t, proc, err
}

// FindStdio implements stream.Finder.
func (p *Pod) FindStdio(containerID, execID string) (*stream.Stdio, error) {
	_, proc, err := p.process(containerID, execID)
	if err != nil {
		return nil, err
	}
	return proc.stdio, nil
}

// place returns the paths and namespaces for a new container, including those
// of the pod's first container that it joins. at.Close must be called.
func (p *Pod) place(id string, config *api.ContainerConfig) (container.Placement, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkOpenLocked(); err != nil {
		return container.Placement{}, fmt.Errorf("container %s: %w", id, err)
	}
	at := container.Placement{
		ID: id, IPC: p.nsPath("ipc"), UTS: p.nsPath("uts"), HasHostname: p.hostname != "",
		Mqueue: p.nsPath("mqueue"), Sysfs: p.nsPath("sysfs"),
	}
	if config.GetOwnUtsNamespace() {
		at.UTS, at.HasHostname = "", false
	}
	if of := config.GetPidNamespaceOf(); of != "" {
		var err error
		if at.Joined, err = p.pidNamespaceOf(of); err != nil {
			return at, fmt.Errorf("container %s: %w", id, err)
		}
		at.PID = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), at.Joined.Fd())
	}
	for _, join := range []struct {
		wanted bool
		kind   string
		path   *string
	}{
		{config.GetSharePidNamespace() && at.PID == "", "pid", &at.PID},
		{config.GetShareUserNamespace(), "user", &at.User},
	} {
		if !join.wanted {
			continue
		}
		if p.first == "" || !slices.Contains(p.pinned, join.kind) {
			at.Close()
			return at, fmt.Errorf("container %s: it is to join the %s namespace of a container, but no such container exists: %w", id, join.kind, errdefs.ErrFailedPrecondition)
		}
		*join.path = p.nsPath(join.kind)
	}
	return at, nil
}

// pidNamespaceOf opens a running container's PID namespace. The caller holds mu.
func (p *Pod) pidNamespaceOf(id string) (*os.File, error) {
	t, ok := p.tasks[id]
	if !ok {
		return nil, fmt.Errorf("join the PID namespace of container %s: %w", id, errdefs.ErrNotFound)
	}
	ctr, err := t.running()
	if err != nil {
		return nil, fmt.Errorf("join the PID namespace: %w", err)
	}
	ns, err := ctr.OpenPIDNamespace()
	if err != nil {
		return nil, fmt.Errorf("join the PID namespace: %w", notRunning(id, err))
	}
	return ns, nil
}

// pinFirst makes t's PID namespace, and its user namespace if it has its own,
// the ones that others may join, if there are none yet.
func (p *Pod) pinFirst(t *task, pid uint32) error {
	p.mu.Lock()
	if p.first != "" {
		p.mu.Unlock()
		return nil
	}
	p.first = t.id.String()
	p.mu.Unlock()
	pinned, err := p.pin(pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned = pinned; err != nil {
		p.first = ""
	}
	return err
}

// pin pins the namespaces of a process that others may join, and returns their
// kinds.
func (p *Pod) pin(pid uint32) (pinned []string, err error) {
	for _, kind := range []string{"pid", "user"} {
		own, err := guest.HasOwnNamespace(pid, kind)
		if err == nil && own {
			err = guest.PinNamespace(fmt.Sprintf("/proc/%d/ns/%s", pid, kind), p.nsPath(kind))
		}
		if err != nil {
			return nil, errors.Join(err, p.unpin(pinned))
		}
		if own {
			pinned = append(pinned, kind)
		}
	}
	return pinned, nil
}

func (p *Pod) unpin(pinned []string) error {
	var errs []error
	for _, kind := range pinned {
		errs = append(errs, guest.UnpinNamespace(p.nsPath(kind)))
	}
	return errors.Join(errs...)
}

// unpinFirst undoes pinFirst when t is that container.
func (p *Pod) unpinFirst(t *task) error {
	p.mu.Lock()
	isFirst, pinned := p.first == t.id.String(), p.pinned
	p.mu.Unlock()
	if !isFirst {
		return nil
	}
	err := p.unpin(pinned)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first, p.pinned = "", nil
	return err
}
