package service

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/container"
)

func TestMain(m *testing.M) {
	_ = log.SetLevel("warn")
	goleak.VerifyTestMain(m)
}

// fakeRuntime makes containers of fake processes, which the test ends.
type fakeRuntime struct {
	mu        sync.Mutex
	pid       int
	createErr error
	limit     uint64
	threads   uint64
	limitErr  error
	watchErr  error  // see fakeContainer
	onCreate  func() // called by Create, if it is set
	created   []container.Placement
	joined    os.FileInfo // the last one's PID namespace, if it has a path
	specs     []*specs.Spec
	last      *fakeContainer
	all       []*fakeContainer
	hooks     string
	console   *os.File // of the processes that are made next
}

// duplicate returns a duplicate of a file, or nil.
func duplicate(f *os.File) *os.File {
	if f == nil {
		return nil
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// newProcess makes a process, which keeps its stdin and stdout open like a real one.
func (r *fakeRuntime) newProcess(stdio container.Stdio) *fakeProcess {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pid++
	return &fakeProcess{
		pid: os.Getpid(), n: r.pid, end: make(chan uint32, 10), reaped: make(chan struct{}),
		stdin: duplicate(stdio.Stdin), stdout: duplicate(stdio.Stdout), console: r.console,
	}
}

func (r *fakeRuntime) LimitMemory(bytes uint64) error {
	r.limit = bytes
	return r.limitErr
}

func (r *fakeRuntime) LimitThreads(uint64) error { return nil }

func (r *fakeRuntime) LimitPodThreads(most uint64) error {
	r.threads = most
	return nil
}

func (r *fakeRuntime) SetHooks(dir string) error {
	r.hooks = dir
	return nil
}

func (r *fakeRuntime) Create(spec *specs.Spec, at container.Placement, stdio container.Stdio) (Container, Process, error) {
	init := r.newProcess(stdio)
	if r.onCreate != nil {
		r.onCreate()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created, r.specs = append(r.created, at), append(r.specs, spec)
	r.joined, _ = os.Stat(at.PID)
	if r.createErr != nil {
		return nil, nil, r.createErr
	}
	r.last = &fakeContainer{runtime: r, init: init, oomHints: make(chan struct{}), watchErr: r.watchErr}
	r.all = append(r.all, r.last)
	return r.last, init, nil
}

type fakeContainer struct {
	runtime *fakeRuntime
	init    *fakeProcess

	mu         sync.Mutex
	execs      []*fakeProcess
	startErr   error
	execErr    error
	onExec     func() // called by Exec, if it is set
	onPause    func() // called by Pause, if it is set
	destroyErr error
	alone      bool // its processes end with its init
	hangs      bool // SIGKILL ends none of them
	kills      uint64
	lateKills  uint64        // are added when WatchOOM is to end
	watchErr   error         // of WatchOOM
	oomHints   chan struct{} // has WatchOOM call its hint
	destroyed  int
	calls      []string
}

func (c *fakeContainer) note(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}

func (c *fakeContainer) Start() error { c.note("start"); return c.startErr }

func (c *fakeContainer) Exec(_ *specs.Process, stdio container.Stdio) (Process, error) {
	c.note("exec")
	if c.onExec != nil {
		c.onExec()
	}
	if c.execErr != nil {
		return nil, c.execErr
	}
	p := c.runtime.newProcess(stdio)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.execs = append(c.execs, p)
	return p, nil
}

func (c *fakeContainer) EndsWithInit() bool { return c.alone }

func (c *fakeContainer) Kill() error {
	c.note("kill")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hangs {
		return nil
	}
	for _, p := range append([]*fakeProcess{c.init}, c.execs...) {
		p.exit(137)
	}
	return nil
}

func (c *fakeContainer) Signal(sig syscall.Signal) error {
	c.note(fmt.Sprintf("signal %d", sig))
	if sig == unix.SIGKILL {
		return c.Kill()
	}
	return nil
}

func (c *fakeContainer) Pause() error {
	c.note("pause")
	if c.onPause != nil {
		c.onPause()
	}
	return nil
}

func (c *fakeContainer) Resume() error        { c.note("resume"); return nil }
func (c *fakeContainer) Pids() ([]int, error) { return []int{os.Getpid(), 1}, nil }

// This process stands for the container's.
func (c *fakeContainer) OpenRoot() (*os.File, error)         { return c.init.open("root") }
func (c *fakeContainer) OpenPIDNamespace() (*os.File, error) { return c.init.open("ns/pid") }

func (c *fakeContainer) KeepMounts() { c.note("keep mounts") }

func (c *fakeContainer) Destroy() error {
	c.note("destroy")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.destroyed++
	return c.destroyErr
}

func (c *fakeContainer) Stats() (*stats.Metrics, error) { return nil, errdefs.ErrNotImplemented }

func (c *fakeContainer) Update(ctx context.Context, _ *specs.LinuxResources) error { return ctx.Err() }

// WatchOOM passes on the test's hints. As it ends, the OOM killer may kill once more.
func (c *fakeContainer) WatchOOM(ctx context.Context, hint func()) error {
	if c.watchErr != nil {
		return c.watchErr
	}
	for {
		select {
		case <-c.oomHints:
			hint()
		case <-ctx.Done():
			c.mu.Lock()
			c.kills += c.lateKills
			c.mu.Unlock()
			hint()
			return nil
		}
	}
}

func (c *fakeContainer) OOMKills() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kills, nil
}

type fakeProcess struct {
	pid, n int
	end    chan uint32
	reaped chan struct{} // closed when it has been waited for
	// stdin and stdout are nil if it has none.
	stdin, stdout *os.File
	console       *os.File

	mu      sync.Mutex
	signals []syscall.Signal
}

func (p *fakeProcess) Pid() int          { return p.pid }
func (p *fakeProcess) Console() *os.File { return p.console }

func (p *fakeProcess) open(name string) (*os.File, error) {
	select {
	case <-p.reaped:
		return nil, unix.ESRCH
	default:
		return os.Open(fmt.Sprintf("/proc/%d/%s", p.pid, name))
	}
}

func (p *fakeProcess) exit(status uint32) {
	select {
	case p.end <- status:
	default:
	}
}

func (p *fakeProcess) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signals = append(p.signals, sig)
	if sig == unix.SIGKILL {
		p.exit(137)
	}
	return nil
}

func (p *fakeProcess) Wait() container.Exit {
	status := <-p.end
	_, _ = p.stdin.Close(), p.stdout.Close() // A nil file has no effect.
	close(p.reaped)
	return container.Exit{Status: status, Signaled: status == 137, At: time.Now()}
}
