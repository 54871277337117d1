package service

import (
	"context"
	"os"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/container"
)

// Runtime makes containers; see container.Runtime for what each method does.
type Runtime interface {
	SetHooks(dir string) error
	LimitMemory(bytes uint64) error
	LimitThreads(reserved uint64) error
	LimitPodThreads(most uint64) error
	Create(spec *specs.Spec, at container.Placement, stdio container.Stdio) (Container, Process, error)
}

// Container is a container that a Runtime made.
type Container interface {
	Start() error
	Exec(spec *specs.Process, stdio container.Stdio) (Process, error)
	Kill() error
	EndsWithInit() bool
	Signal(sig syscall.Signal) error
	Pause() error
	Resume() error
	Pids() ([]int, error)
	Stats() (*stats.Metrics, error)
	Update(ctx context.Context, res *specs.LinuxResources) error
	WatchOOM(ctx context.Context, hint func()) error
	OOMKills() (uint64, error)
	OpenRoot() (*os.File, error)         // also alongside Destroy
	OpenPIDNamespace() (*os.File, error) // also alongside Destroy
	KeepMounts()
	Destroy() error
}

// Process is a started process.
type Process interface {
	Pid() int
	Console() *os.File
	Signal(sig syscall.Signal) error
	Wait() container.Exit
}

// LibRuntime is the Runtime that the guest uses.
type LibRuntime struct{ *container.Runtime }

var _ Runtime = LibRuntime{}

// Create implements Runtime.
func (r LibRuntime) Create(spec *specs.Spec, at container.Placement, stdio container.Stdio) (Container, Process, error) {
	c, p, err := r.Runtime.Create(spec, at, stdio)
	if err != nil {
		return nil, nil, err
	}
	return libContainer{c}, p, nil
}

type libContainer struct{ *container.Container }

// Exec implements Container.
func (c libContainer) Exec(spec *specs.Process, stdio container.Stdio) (Process, error) {
	p, err := c.Container.Exec(spec, stdio)
	if err != nil {
		return nil, err
	}
	return p, nil
}
