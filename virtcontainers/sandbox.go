package virtcontainers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/podnet"
	"github.com/katabox/katabox/virtcontainers/prom"
	"github.com/katabox/katabox/virtcontainers/sizing"
)

// Options describe the sandbox to make.
type Options struct {
	ID       string
	Hostname string
	Network  podnet.Spec
	// CgroupsPath is the cgroup that the engine chose for the sandbox's own
	// container (OCI's linux.cgroupsPath): the pod's is made beside it. Empty:
	// the pod is in its own cgroup below /kata_overhead.
	CgroupsPath string
	// ShimCgroup is a cgroup that the engine has made for this process and its
	// helpers (runc's option of that name), by its path below the hierarchies'
	// roots. If empty, they are with the rest of the pod.
	ShimCgroup string
	Size       sizing.Hints
	// ShmBytes is the size of the pod's shared memory (/dev/shm); 0 is
	// guestfs.DefaultShmBytes.
	ShmBytes uint64
	Config   *config.Config
	Observer Observer
	// Sysctls are the pod's. Without a pause container, whose spec would have them, the
	// guest gets them with each of the pod's containers.
	Sysctls map[string]string
	// Mounts are binds for each of the containers, unless its spec has a bind at the same
	// destination.
	Mounts []specs.Mount
	// StandIn gives the sandbox its own stand-in process: no container of
	// it has the sandbox's id.
	StandIn bool
	// Restore, if not nil, is the checkpoint that the sandbox continues from.
	Restore *Restoration
	// Arrival is for the sandbox's timeline.
	Arrival Arrival
	// Pod is the pod's name in Kubernetes, if it has one.
	Pod bundle.PodName
	// Manage, if not nil, serves the sandbox's management socket in its
	// record's directory, until the function that it returns is called; that
	// function waits for requests under way. Manage is called once the guest is
	// set up.
	Manage func(ctx context.Context, s *Sandbox, dir string) (stop func() error, err error)
}

// Sandbox is a pod: a virtual machine and its containers. Its methods may be
// called from several goroutines.
type Sandbox struct {
	ID       string
	opts     Options
	observer Observer

	// machine is the sandbox's; its boot has the pod's steps too.
	machine
	// stock has the host's missing templates and spares made while the sandbox lives.
	stock *stock
	// durations counts how long boot, creations and starts took, for the
	// sandbox's whole life.
	durations prom.Durations

	// Set by the boot; not changed afterwards.
	sizing   *sizing.Pod
	network  *podnet.Pod
	standIns *standIns
	// spare is the machine that the sandbox has adopted, or adopts; nil for none.
	spare *Spare
	// unmanage ends the management socket, or is nil.
	unmanage func() error

	// lifeCtx is for the goroutines that watch the guest and the exits; end
	// cancels it.
	lifeCtx context.Context //nolint:containedctx // the sandbox's own life, not a request's
	end     context.CancelFunc
	// kills receives processes whose end must be enforced.
	kills chan *Process
	// sleeper has the sandbox hibernate and wake. Every call to the guest passes it.
	sleeper sleeper
	// clockSet gets a value when the guest's clock was set after a pause, or could
	// not be set.
	clockSet chan struct{}
	// watchers are the goroutines that follow the guest and report its exits.
	watchers sync.WaitGroup
	// stopped is closed when the teardown has ended.
	stopped chan struct{}

	mu sync.Mutex // guards what follows
	// containers holds those being created too; see Container.created.
	containers map[string]*Container
	// stopping is set when the teardown begins: from then on nothing new is
	// admitted.
	stopping bool
	// lost is why contact with the guest is gone, or nil.
	lost error
	// tellLast reports the exit of the sandbox's own container, once that is
	// known. The teardown calls it last.
	tellLast func()
	// stopErr is the teardown's error and ended the sandbox's own exit, both
	// written before stopped is closed.
	stopErr error
	ended   Exit
}

// New boots a sandbox. ctx bounds the boot. On an error nothing is left, and
// the error names the failed step and has the machine's last output.
func New(ctx context.Context, platform Platform, opts Options) (*Sandbox, error) {
	if platform.AccelReason != "" {
		log.G(ctx).Warnf("the guest will be slow: %s", platform.AccelReason)
	}
	began := time.Now()
	defer platform.Spare.discard(ctx)
	s, err := bootNew(ctx, platform, opts, ofTemplate{})
	if err != nil && s.bootAnew(ctx, err) {
		platform.Spare = nil
		s, err = bootNew(ctx, platform, opts, s.template)
	}
	s.judgeTemplate(ctx, err)
	if err != nil {
		return nil, fmt.Errorf("boot sandbox %s: %w", opts.ID, err)
	}
	s.recorder.Add("", bootSpan, began, time.Now())
	s.durations.Observe(bootAction, time.Since(began))
	s.logBoot(ctx)
	s.watch()
	return s, nil
}

// bootNew makes a sandbox and boots it. After an error nothing is left but the
// Sandbox value, which describes it.
func bootNew(ctx context.Context, platform Platform, opts Options, template ofTemplate) (*Sandbox, error) {
	s, err := newSandbox(ctx, platform, opts)
	s.template = template
	if err == nil {
		s.startPlain(ctx)
		if opts.Restore == nil {
			s.considerSpare(ctx)
		}
		err = s.boot.run(ctx, s.startSteps())
	}
	if err != nil {
		s.end()
	}
	return s, err
}

// bootAnew reports whether a failed boot should be tried again without a spare
// machine or a template. A machine that has not ended is not replaced: the record
// names it.
func (s *Sandbox) bootAnew(ctx context.Context, err error) bool {
	if ctx.Err() != nil || s.stays {
		return false
	}
	if s.spare != nil {
		s.template = ofTemplate{}
		log.G(ctx).WithError(err).Warn("the guest boots: the sandbox could not start on its spare machine")
		return true
	}
	return s.leaveTemplate(ctx, err)
}

// newSandbox makes a sandbox that has not booted.
func newSandbox(ctx context.Context, platform Platform, opts Options) (*Sandbox, error) {
	b := blueprint{id: opts.ID, platform: platform, config: opts.Config}
	lifeCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	s := &Sandbox{
		ID: opts.ID, opts: opts, observer: opts.Observer,
		machine: newMachine(b, opts.Arrival.record(time.Now())),
		stock:   newStock(ctx, platform, opts.Config),
		lifeCtx: lifeCtx, end: end,
		kills:      make(chan *Process),
		clockSet:   make(chan struct{}, 1),
		stopped:    make(chan struct{}),
		containers: make(map[string]*Container),
	}
	s.sleeper = newSleeper(s)
	s.mayOrder = s.stock.home != nil
	var err error
	if s.sizing, err = sizing.New(ctx, s.sizingOptions()); err != nil {
		return s, err
	}
	s.network = podnet.New(s.networkOptions())
	s.size, s.namespace = &s.sizing.Start, s.network.EngineNamespace()
	return s, nil
}

func (s *Sandbox) sizingOptions() sizing.Options {
	return sizing.Options{
		SandboxID: s.ID, CgroupName: s.platform.Owner.Name(s.ID), Config: s.opts.Config, Accel: s.platform.Accel, Hints: s.opts.Size,
		Most: s.opts.Restore.most(), CgroupsPath: s.opts.CgroupsPath, ShimCgroup: s.opts.ShimCgroup, CgroupRoot: s.platform.CgroupRoot,
		WhileAlive: s.whileAlive, Ending: func() bool { return s.isStopping() || s.gone() },
		EnterAwake: s.sleeper.enterAwake,
	}
}

func (s *Sandbox) networkOptions() podnet.Options {
	return podnet.Options{
		Spec: s.opts.Network, Hostname: s.opts.Hostname, Config: s.opts.Config,
		Open: s.platform.OpenNetwork, OpenForward: s.platform.OpenForward,
		Pass: s.sleeper.enter, Queues: s.sizing.NICQueues(),
		Save: func(namespace string, made []byte) error {
			return s.state.Update(func(r *persist.Record) { r.NetNS, r.Network = namespace, made })
		},
	}
}

func (s *Sandbox) logBoot(ctx context.Context) {
	info := s.client.Info
	log.G(ctx).WithFields(s.boot.fields()).WithFields(log.Fields{
		"vcpus": s.sizing.Initial().VCPUs, "memory_mib": s.sizing.Initial().MemoryMiB, "accel": s.platform.Accel, "vsock": s.transport.Kind(), "vm_pid": s.vm.PID(), "template": s.template.key, "spare": s.spare != nil,
		"guest_kernel": version(info.KernelRelease), "agent_version": version(info.AgentVersion), "agent_rss": info.AgentRss,
		"guest_boot_to_agent_us": info.BootToAgentUs, "guest_boot_to_serving_us": info.BootToServingUs,
	}).Info("sandbox booted")
}

// Config is the configuration that the sandbox was made with; it must not be
// changed.
func (s *Sandbox) Config() *config.Config { return s.opts.Config }

// PID is the process id by which the host knows a sandbox that was made with
// Options.StandIn; otherwise 0.
func (s *Sandbox) PID() int { return s.standIns.ownPID() }

// agent returns the client of the guest's agent, while there is one.
func (s *Sandbox) agent() (*guest.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return nil, fmt.Errorf("sandbox %s is gone: %w: %w", s.ID, s.lost, errdefs.ErrUnavailable)
	}
	return s.client, nil
}

// gone reports whether the guest has ended, and everything in it.
func (s *Sandbox) gone() bool {
	_, err := s.agent()
	return err != nil
}

// ignoreGone drops the error of a removal in the guest if it means that nothing
// is left to remove: the process, or the whole guest, is gone.
func (s *Sandbox) ignoreGone(err error) error {
	if errdefs.IsNotFound(err) || guest.Disconnected(err) || s.gone() {
		return nil
	}
	return err
}

// isStopping reports whether the teardown has begun.
func (s *Sandbox) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// awaitStop waits for the end of a teardown that has begun; otherwise it
// returns immediately.
func (s *Sandbox) awaitStop(ctx context.Context) error {
	if !s.isStopping() {
		return nil
	}
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of sandbox %s: %w", s.ID, context.Cause(ctx))
	}
}
