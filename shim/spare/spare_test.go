package spare_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/shimtest"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/pool"
)

func TestMain(m *testing.M) { shimtest.Main(m) }

const patience = 20 * time.Second

// engine starts shims whose guests are in memory, as an engine does.
type engine struct {
	t            *testing.T
	program, dir string
	spares       pool.Pool
}

// newEngine makes an engine whose configuration asks for that many spares. In the
// end none may be left.
func newEngine(t *testing.T, wanted int) *engine {
	t.Helper()
	program, dir := shimtest.Prepare(t)
	e := &engine{t: t, program: filepath.Join(dir, "containerd-shim-kata-v2"), dir: dir, spares: virtcontainers.PoolDir(dir)}
	if err := os.Link(program, e.program); err != nil { // "delete" knows its daemons by this name
		t.Fatal(err)
	}
	var conf strings.Builder
	fmt.Fprintln(&conf, "[hypervisor.qemu]")
	for _, key := range []string{"path", "kernel", "initrd"} {
		file := filepath.Join(t.TempDir(), key)
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&conf, "%s = %q\n", key, file)
	}
	fmt.Fprintf(&conf, "[factory]\nvm_cache_number = %d\ntemplate_path = %q\n", wanted, filepath.Join(dir, "templates"))
	if err := os.WriteFile(os.Getenv("KATA_CONF_FILE"), []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.settled(0)
		if err := errors.Join(e.spares.End(func(pool.Info) bool { return true }), e.spares.RemoveEmpty()); err != nil {
			t.Error(err)
		}
		if left, err := filepath.Glob(filepath.Join(e.spares.Dir, "*")); err != nil || len(left) != 0 {
			t.Errorf("the pool has %v, %v", left, err)
		}
	})
	return e
}

// settled waits until at least that many spares are ready and none is being made.
func (e *engine) settled(want int) []pool.Spare {
	e.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		list, err := e.spares.List()
		ready := 0
		for _, s := range list {
			if s.State == pool.Ready {
				ready++
			}
		}
		lock, lockErr := os.ReadFile(filepath.Join(e.dir, "templates", "lock"))
		if err == nil && ready == len(list) && ready >= want && (lockErr != nil || len(lock) == 0) {
			return list
		}
		if time.Now().After(deadline) {
			failures, _ := filepath.Glob(filepath.Join(e.dir, "templates", "failed-*"))
			for _, f := range failures {
				text, _ := os.ReadFile(f)
				e.t.Logf("%s", text)
			}
			e.t.Fatalf("spares %+v, %v, lock %s; want %d", list, err, lock, want)
		}
	}
}

// pod is a pod with its shim.
type pod struct {
	e           *engine
	id, address string
	shim        persist.Process
	service     task.TTRPCTaskService
}

// bundleOf makes a pod's bundle.
func (e *engine) bundleOf(id string) string {
	dir := filepath.Join(e.dir, "bundles", id)
	if err := fakeguest.WriteBundle(dir, nil); err != nil {
		e.t.Error(err)
	}
	return dir
}

func (e *engine) command(id, action string) *exec.Cmd {
	cmd := exec.Command(e.program, "-namespace", "test", "-id", id, "-address", e.dir, action)
	cmd.Dir = filepath.Join(e.dir, "bundles", id)
	cmd.Env = append(os.Environ(), "POD="+id)
	return cmd
}

// start starts a pod's shim. It may be called concurrently.
func (e *engine) start(id string) *pod {
	dir := e.bundleOf(id)
	out, err := e.command(id, "start").Output()
	if err != nil {
		e.t.Errorf("start of %s: %v", id, err)
		return nil
	}
	p := &pod{e: e, id: id, address: string(out)}
	text, err := os.ReadFile(filepath.Join(dir, bundle.PIDFile))
	if err == nil {
		p.shim.PID, err = strconv.Atoi(string(text))
	}
	if err == nil {
		p.shim, err = persist.Identify(p.shim.PID)
	}
	var conn net.Conn
	if err == nil {
		conn, err = net.Dial("unix", strings.TrimPrefix(p.address, bundle.AddressScheme))
	}
	if err != nil {
		e.t.Error(err)
		return nil
	}
	client := ttrpc.NewClient(conn)
	e.t.Cleanup(func() { _ = client.Close() })
	p.service = task.NewTTRPCTaskClient(client)
	return p
}

// run runs the pod's container.
func (p *pod) run() {
	p.e.t.Helper()
	ctx := p.e.t.Context()
	_, err := p.service.Create(ctx, &task.CreateTaskRequest{ID: p.id, Bundle: filepath.Join(p.e.dir, "bundles", p.id)})
	if err == nil {
		_, err = p.service.Start(ctx, &task.StartRequest{ID: p.id})
	}
	if err != nil {
		p.e.t.Fatal(err)
	}
}

// end ends the pod and its shim.
func (p *pod) end() {
	p.e.t.Helper()
	ctx := p.e.t.Context()
	_, err := p.service.Kill(ctx, &task.KillRequest{ID: p.id, Signal: 9})
	if err == nil {
		_, err = p.service.Wait(ctx, &task.WaitRequest{ID: p.id})
	}
	if err == nil {
		_, err = p.service.Delete(ctx, &task.DeleteRequest{ID: p.id})
	}
	if err != nil {
		p.e.t.Error(err)
	}
	_, _ = p.service.Shutdown(ctx, &task.ShutdownRequest{ID: p.id}) // it may end before it answers
	if err := p.shim.Await(patience); err != nil {
		p.e.t.Error(err)
	}
}

// find returns the spare with that process, if there is one.
func find(list []pool.Spare, p persist.Process) (pool.Spare, bool) {
	for _, s := range list {
		if s.Process == p {
			return s, true
		}
	}
	return pool.Spare{}, false
}

// The first pod has the spares made, and the next is on one of them.
func TestPods(t *testing.T) {
	e := newEngine(t, 2)
	first := e.start("first")
	first.run()
	spares := e.settled(2)
	first.end()
	seen := map[persist.Process]bool{}
	for i := range 3 {
		p := e.start("pod" + strconv.Itoa(i))
		if _, is := find(spares, p.shim); !is || seen[p.shim] {
			t.Errorf("pod %d has shim %+v; the spares are %+v", i, p.shim, spares)
		}
		seen[p.shim] = true
		p.check()
		records, err := persist.List(filepath.Join(e.dir, "sandboxes"))
		if err != nil || len(records) != 0 {
			t.Errorf("records before Create: %+v, %v", records, err)
		}
		p.run()
		if records, err = persist.List(filepath.Join(e.dir, "sandboxes")); err != nil || len(records) != 1 || !records[0].VM.Alive() {
			t.Errorf("records: %+v, %v", records, err)
		}
		spares = e.settled(2)
		p.end()
	}
	if n := len(spares); n != 2 {
		t.Errorf("%d spares, want 2", n)
	}
}

// check checks that the pod's shim is like any other.
func (p *pod) check() {
	p.e.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.shim.PID)
	cmdline, err := os.ReadFile(proc + "cmdline")
	cwd, err2 := os.Readlink(proc + "cwd")
	comm, err3 := os.ReadFile(proc + "comm")
	if err := errors.Join(err, err2, err3); err != nil {
		p.e.t.Fatal(err)
	}
	args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	if got, want := strings.Join(args[1:], " "), "-namespace test -id "+p.id+" -address "+p.e.dir+" -publish-binary "; strings.TrimSpace(got) != strings.TrimSpace(want) {
		p.e.t.Errorf("arguments %q, want %q", got, want)
	}
	if cwd != filepath.Join(p.e.dir, "bundles", p.id) {
		p.e.t.Errorf("working directory %s", cwd)
	}
	name := filepath.Base(p.e.program)
	if got := strings.TrimSpace(string(comm)); got != name[:min(len(name), 15)] {
		p.e.t.Errorf("name %q", got)
	}
	prio, err := unix.Getpriority(unix.PRIO_PROCESS, p.shim.PID)
	if own, ownErr := unix.Getpriority(unix.PRIO_PROCESS, 0); errors.Join(err, ownErr) != nil || prio != own { // that of what starts pods
		p.e.t.Errorf("priority %d, want %d; %v", prio, own, errors.Join(err, ownErr))
	}
}

// Of several starts at once, one has the spare, and the others start daemons.
func TestStartsRace(t *testing.T) {
	e := newEngine(t, 1)
	first := e.start("first")
	first.run()
	spare := e.settled(1)
	const starts = 4
	pods := make([]*pod, starts)
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() { pods[i] = e.start("pod" + strconv.Itoa(i)) })
	}
	all.Wait()
	on := 0
	for _, p := range pods {
		if p == nil {
			t.FailNow()
		}
		if _, is := find(spare, p.shim); is {
			on++
		}
		p.run()
	}
	if on != 1 {
		t.Errorf("%d pods are on the spare", on)
	}
	e.settled(1)
	for _, p := range append(pods, first) {
		p.end()
	}
}

// withSpare makes one spare, and returns it, with the process of its machine.
func withSpare(t *testing.T) (e *engine, spare pool.Spare, vm persist.Process) {
	t.Helper()
	e = newEngine(t, 1)
	spare, vm = e.makeSpare()
	return e, spare, vm
}

func (e *engine) makeSpare() (spare pool.Spare, vm persist.Process) {
	e.t.Helper()
	first := e.start("first")
	first.run()
	spare = e.settled(1)[0]
	first.end()
	records, err := persist.List(filepath.Join(e.spares.Dir, "spare-"+spare.ID))
	if err != nil || len(records) != 1 || !records[0].VM.Alive() {
		e.t.Fatalf("the spare's records: %+v, %v", records, err)
	}
	return spare, records[0].VM
}

// gone checks that a spare and its machine end.
func gone(t *testing.T, e *engine, spare pool.Spare, vm persist.Process) {
	t.Helper()
	if err := errors.Join(spare.Process.Await(patience), vm.Await(patience), e.spares.Tidy()); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(e.spares.Dir, "*"+spare.ID)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A pod that is to have its own domain of core scheduling leaves spares to others, and
// makes none.
func TestCoreSchedulingTakesNoSpare(t *testing.T) {
	e, spare, _ := withSpare(t)
	t.Setenv("SCHED_CORE", "1")
	var cookie uint64
	if unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, 0, 0, uintptr(unsafe.Pointer(&cookie))) == nil {
		p := e.start("x")
		p.run()
		p.end()
	} else {
		e.bundleOf("x")
		if out, err := e.command("x", "start").Output(); err == nil {
			t.Errorf("without core scheduling the start answers %q", out)
		}
	}
	if list := e.settled(1); len(list) != 1 {
		t.Errorf("the spares are %+v, want only the one before", list)
	} else if _, is := find(list, spare.Process); !is {
		t.Errorf("the spare is %+v, was %+v", list[0], spare)
	}
}

// A spare ends with its machine if its claimer goes away, at whatever point, if it
// is told to, and if the machine ends.
func TestSpareEnds(t *testing.T) {
	claim := func(e *engine, s pool.Spare) *pool.Claim {
		c, err := e.spares.Claim(e.t.Context(), s.Name)
		if err != nil || c == nil {
			e.t.Fatalf("claim: %v, %v", c, err)
		}
		return c
	}
	order := func(e *engine) pool.Order {
		return pool.Order{Args: []string{"shim", "-namespace", "test", "-id", "x", "-address", e.dir}, Env: os.Environ(), Dir: e.bundleOf("x")}
	}
	for name, act := range map[string]func(*engine, pool.Spare, persist.Process) error{
		"SIGTERM": func(_ *engine, s pool.Spare, _ persist.Process) error { return s.Process.Signal(unix.SIGTERM) },
		"SIGKILL": func(_ *engine, s pool.Spare, _ persist.Process) error { return s.Process.Signal(unix.SIGKILL) },
		"machine": func(_ *engine, _ pool.Spare, vm persist.Process) error { return vm.Signal(unix.SIGKILL) },
		"claimed, no order": func(e *engine, s pool.Spare, _ persist.Process) error {
			claim(e, s).Abandon()
			return nil
		},
		"ordered, not begun": func(e *engine, s pool.Spare, _ persist.Process) error {
			c := claim(e, s)
			if err := c.Give(order(e), os.Stdin); err != nil {
				return err
			}
			c.Abandon()
			return nil
		},
		"nonsense": func(e *engine, s pool.Spare, _ persist.Process) error {
			c := claim(e, s)
			defer c.Abandon()
			o := order(e)
			o.Args = []string{"shim", "start"}
			if err := c.Give(o, os.Stdin); err == nil {
				return errors.New("the order is taken")
			}
			return nil
		},
		"ended by its claimer": func(e *engine, s pool.Spare, _ persist.Process) error { return claim(e, s).End() },
	} {
		t.Run(name, func(t *testing.T) {
			e, spare, vm := withSpare(t)
			if err := act(e, spare, vm); err != nil {
				t.Error(err)
			}
			gone(t, e, spare, vm)
		})
	}
}

// A spare whose guest does not answer any more ends.
func TestSilentSpareEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "silent")
	t.Setenv(shimtest.SilentEnv, file)
	e := newEngine(t, 1)
	conf, err := os.OpenFile(os.Getenv("KATA_CONF_FILE"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = conf.WriteString("[agent.kata]\ndial_timeout = 2\n")
		err = errors.Join(err, conf.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	spare, vm := e.makeSpare()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone(t, e, spare, vm)
}

// A start whose spare hangs or is dead starts a daemon, and ends the spare.
func TestSpareThatHangs(t *testing.T) {
	for _, signal := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		e, spare, vm := withSpare(t)
		if err := spare.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		p := e.start("pod")
		if p.shim == spare.Process {
			t.Error("the pod is on the spare")
		}
		gone(t, e, spare, vm)
		p.run()
		e.settled(1)
		p.end()
	}
}

// "delete" ends a claimed spare whose engine could not reach it.
func TestDeleteOfClaimedSpare(t *testing.T) {
	e, spare, vm := withSpare(t)
	p := e.start("pod")
	if p.shim != spare.Process {
		t.Fatalf("the pod has shim %+v, not the spare %+v", p.shim, spare.Process)
	}
	if out, err := e.command("pod", "delete").CombinedOutput(); err != nil {
		t.Errorf("delete: %v, %s", err, out)
	}
	gone(t, e, spare, vm)
}

// A spare that cannot be made is not tried again at once, and pods run.
func TestSpareCannotBeMade(t *testing.T) {
	e := newEngine(t, 1)
	conf := os.Getenv("KATA_CONF_FILE")
	text, err := os.ReadFile(conf)
	if err == nil { // such a machine is not saved, and no spare
		err = os.WriteFile(conf, []byte(strings.Replace(string(text), "[factory]", "enable_mem_prealloc = true\n[factory]", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	store := factory.Store{Dir: filepath.Join(e.dir, "templates")}
	for i := range 2 {
		p := e.start("pod" + strconv.Itoa(i))
		p.run()
		var failures []factory.Failure
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			e.settled(0)
			if failures, err = store.Failures(); err != nil || len(failures) == 1 && strings.Contains(failures[0].Why, "have no templates") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("failures %+v", failures)
			}
		}
		p.end()
		if err != nil || failures[0].Times != 1 {
			t.Errorf("failures %+v, %v", failures, err)
		}
	}
}
