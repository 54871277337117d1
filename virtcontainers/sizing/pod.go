package sizing

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/ctxmutex"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// Hints are what the engine says about a pod's size before its containers
// exist.
type Hints struct {
	// Annotations are those of the sandbox's own container; CRI's hold the sum
	// of all containers' limits.
	Annotations map[string]string
	// Pod is that sum of a sandbox without a container, or nil; if it is set, the
	// annotations do not count.
	Pod *specs.LinuxResources
	// Limits are the sandbox's own container's, or nil. They are used only if the
	// machine keeps its initial size.
	Limits *specs.LinuxResources
}

// Most is the size that a machine can grow to, which is fixed at its start.
type Most struct {
	VCPUs     uint32
	MemoryMiB uint64
}

// Options describe the pod that is sized.
type Options struct {
	// SandboxID is also the id of the sandbox's own container.
	SandboxID string
	// CgroupName is the name of the pod's cgroups, unique on the host.
	CgroupName string
	Config     *config.Config
	Accel      hypervisor.Accel
	Hints      Hints
	// Most is set for a machine that continues from a saved one, which has it; nil for
	// others.
	Most *Most
	// CgroupsPath is the cgroup that the engine chose for the sandbox's own
	// container; the pod's is made beside it. Empty: the pod is in its overhead
	// cgroup.
	CgroupsPath string
	// ShimCgroup is an existing cgroup for this process and what it starts
	// beside the machine. Empty: they are with the rest of the pod.
	ShimCgroup string
	// CgroupRoot is where the host's cgroup file systems are; empty is
	// hostcgroup.DefaultRoot.
	CgroupRoot string
	// WhileAlive derives a context that also ends when the machine does.
	WhileAlive func(context.Context) (context.Context, context.CancelFunc)
	// Ending reports whether the sandbox is being torn down or has lost its
	// guest: nothing is resized then. It must not block.
	Ending func() bool
	// EnterAwake waits, within its context, until the machine runs; it is not paused
	// until leave is called.
	EnterAwake func(context.Context) (leave func(), err error)
}

// Guest is what sizing needs of the pod's agent; see guest.Client.
type Guest interface {
	SetResources(ctx context.Context, cpus uint32, memoryMiB uint64) (*api.SetResourcesResponse, error)
	LimitContainers(ctx context.Context, memory, threads uint64) error
}

// Pod is the size of a pod's machine and of its cgroups on the host. Once the
// pod has booted, Admit, Update, Release and Watch may be called concurrently.
type Pod struct {
	opts Options
	// Start is the machine's; StartPlain changes its size.
	Start
	// machine is how far the machine is to grow.
	machine resource.Machine
	// nicQueues is NICQueues; StartPlain does not change it.
	nicQueues uint32
	// whole is what all its containers together may use, the zero value if the engine
	// has not said. What a container's new limits have made outdated is zero. Changed only
	// by the holder of resizes.
	whole resource.Need
	// parts are what each container, by its name in the pod, may use or last could.
	// Changed only by the holder of resizes.
	parts map[string]resource.Need
	// above is where the host's limits for the pod are, first what they were at New; the
	// zero value if they could not be read.
	above     hostcgroup.Above
	first     hostcgroup.Limits
	together  together
	hugepages podHugepages // changed like whole

	// Set by the boot; not changed afterwards.
	cgroup     *cgroup              // nil for none
	shimCgroup *hostcgroup.Existing // nil for none
	vm         hypervisor.VM
	guest      Guest
	// sharedMiB is how much of its template's memory the machine maps privately; 0 for a
	// machine that shares none.
	sharedMiB uint64

	leaving leaving

	// resizes is held across QMP and agent calls.
	resizes ctxmutex.Mutex
	// smaller has an entry when the pod may need less than before, or its vCPUs may have
	// to be bound again.
	smaller chan struct{}

	// resizes guards these.
	vcpus     uint32
	memoryMiB uint64
	guestHas  guestLimits
	// unused is set while the guest may not have brought all of it online.
	unused bool
	// cpusLeave is set while the guest may still release vCPUs that it kept when the
	// machine was made smaller: vcpus may count too many.
	cpusLeave bool
	// placed is the place last written to the pod's cgroup, and pinned the last
	// log line about the binding of vCPUs.
	placed, pinned string
	// bounded is the bound of memory, in bytes, last set where the pod's helpers
	// are. Account and ChargeCPUs come before all resizes and need not hold it.
	bounded uint64
	// chargedMiB is the guest's memory for which the machine was last charged, also set
	// by Account and ChargeCPUs.
	chargedMiB uint64
	// chargedUnder are the host's limits at that time.
	chargedUnder hostcgroup.Limits
	// booted is set once the guest's CPU time is charged, unaccounted when the
	// machine could not be moved into the pod's cgroups.
	booted, unaccounted bool

	mu sync.Mutex // guards admitted
	// admitted holds each container from Admit to Release. The values are not
	// changed, only replaced.
	admitted map[string]*allowance
}

// New chooses the size that the machine starts with. It fails when the hints
// cannot be parsed or the host cannot provide the memory backing.
func New(ctx context.Context, opts Options) (*Pod, error) {
	p := &Pod{opts: opts, resizes: ctxmutex.New(), smaller: make(chan struct{}, 1)}
	p.parts, p.admitted = make(map[string]resource.Need), make(map[string]*allowance)
	p.leaving.done = make(chan struct{})
	if err := p.choose(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Connect sets the agent. It is called once, before the first Admit.
func (p *Pod) Connect(agent Guest) { p.guest = agent }

// hold locks resizes; on success the caller must call letGo.
func (p *Pod) hold(ctx context.Context) error {
	if err := p.resizes.Lock(ctx); err != nil {
		return fmt.Errorf("wait for a concurrent resize: %w", err)
	}
	return nil
}

func (p *Pod) letGo() { p.resizes.Unlock() }

// Container is what sizing needs to know about a container.
type Container struct {
	ID string
	// Name is the container's in its pod, which it keeps when it is created again with
	// another ID; empty if the engine has not said.
	Name string
	Spec *specs.Spec
	// Pause marks the pod's pause container: it needs no part of the machine, and its OOM
	// score and its CPUs do not count beside those of the other containers.
	Pause bool
}

// allowance is what a container may use. It is immutable.
type allowance struct {
	Container
	// limits are those of its cgroup; need is its part of the machine, and
	// place its part of the host, both derived from limits.
	limits *specs.LinuxResources
	need   resource.Need
	place  resource.Place
}

func (p *Pod) allowanceOf(c Container, limits *specs.LinuxResources) (*allowance, error) {
	need, err := p.opts.Hints.need(limits)
	if err != nil {
		return nil, err
	}
	if c.Pause {
		need = resource.Need{}
	}
	place, err := resource.PlaceOf(limits)
	if err != nil {
		return nil, err
	}
	return &allowance{Container: c, limits: limits, need: need, place: place}, nil
}

// Admit grows the machine for one more container and gives the pod's cgroup the
// container's CPUs. It waits for a concurrent resize, within ctx. Every Admit,
// even a failed one, must be followed by a Release.
//
// pages are the limits of huge pages of all the pod's containers together, for the guest to
// reserve. There are none if the containers' specs have their own limits, or before the
// first Admit of one that has not.
func (p *Pod) Admit(ctx context.Context, c Container) (pages []specs.LinuxHugepageLimit, err error) {
	allowed, err := p.allowanceOf(c, c.Spec.Linux.Resources)
	if err != nil {
		return nil, err
	}
	if err := p.hold(ctx); err != nil {
		return nil, err
	}
	defer p.letGo()
	allowed.need = p.admitPart(c, allowed.need)
	if err := p.admitHugepages(ctx, c); err != nil {
		return nil, err
	}
	p.set(c.ID, allowed)
	if err := p.makeRoom(ctx); err != nil {
		return nil, err
	}
	return p.hugepages.limits, nil
}

// Update grows the machine for a container's new limits, calls apply to set
// them in the guest, and shrinks the machine later where they are lower.
// encoded is the JSON of OCI LinuxResources. apply gets them decoded, or nil if
// they cannot be decoded: then its error is returned. On an error the old
// limits apply again.
func (p *Pod) Update(ctx context.Context, id string, encoded []byte, apply func(*specs.LinuxResources) error) error {
	var update specs.LinuxResources
	if err := json.Unmarshal(encoded, &update); err != nil {
		return apply(nil) // the agent explains what is wrong with it
	}
	if err := p.hold(ctx); err != nil {
		return err
	}
	defer p.letGo()
	defer p.mayShrink()
	before := p.get(id)
	if before == nil {
		return apply(&update) // it has ended, and the agent reports that
	}
	allowed, err := p.allowanceOf(before.Container, resource.Updated(before.limits, &update))
	if err != nil {
		return err
	}
	allowed.need = before.need.Updated(allowed.need)
	p.replace(id, before, allowed)
	if err = p.makeRoom(ctx); err == nil {
		err = apply(&update)
	}
	if err != nil {
		p.replace(id, allowed, before)
		return err
	}
	p.updatePart(before.Container, before.need, allowed.need)
	return nil
}

// Release removes a container that has ended or could not be created, and lets
// the pod shrink. It does not block. It may be called again, and for an ID that
// was never admitted.
func (p *Pod) Release(id string) {
	p.mu.Lock()
	delete(p.admitted, id)
	p.mu.Unlock()
	p.mayShrink()
}

func (p *Pod) get(id string) *allowance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admitted[id]
}

func (p *Pod) set(id string, allowed *allowance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitted[id] = allowed
}

// replace changes what a container may use, unless it was released meanwhile.
func (p *Pod) replace(id string, before, after *allowance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admitted[id] == before {
		p.admitted[id] = after
	}
}

// living lists the containers that were admitted and not released.
func (p *Pod) living() []*allowance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.admitted))
}

// mayShrink wakes Watch.
func (p *Pod) mayShrink() {
	select {
	case p.smaller <- struct{}{}:
	default: // Watch has been woken already
	}
}

// levelOf returns the level for an error that may be the same as the last.
func levelOf(again bool) log.Level {
	if again {
		return log.DebugLevel
	}
	return log.WarnLevel
}

// Watch shrinks the pod after a Release and an Update, and follows what other programs
// do to its cgroups, until ctx ends. An error is logged: the pod then stays larger
// than it needs to be, or is without its cgroups' settings.
func (p *Pod) Watch(ctx context.Context) {
	l := p.newLookout()
	var following sync.WaitGroup
	following.Go(func() { l.followAll(ctx) })
	defer following.Wait()
	look, stop := p.startLooking()
	defer stop()
	for {
		select {
		case <-look:
			if err := l.look(ctx); err != nil && ctx.Err() == nil && !p.opts.Ending() {
				log.G(ctx).WithError(err).Warn("the pod's cgroup on the host has lost its settings")
			}
		case <-ctx.Done():
			return
		}
	}
}
