package isulad

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	tasktypes "github.com/containerd/containerd/api/types/task"

	"github.com/katabox/katabox/tests/isulad/engine"
)

var bareAddress = regexp.MustCompile(`^unix:///run/[!-~]{1,90}$`)

// 1. start prints the bare address, without a newline.
func TestPoint1StartPrintsTheBareAddress(t *testing.T) {
	ctx := testContext(t)
	pod := sharedPod(ctx, t)
	c := start(ctx, t, app(pod, "sleep", "1000"), engine.Detached)
	for _, one := range []*engine.Container{bed.pod, c} {
		l := one.Launches()[0]
		if !bareAddress.MatchString(l.Stdout) || l.ExitCode != 0 || l.Stderr != "" {
			t.Errorf("start ended with %d and printed %q and %q", l.ExitCode, l.Stdout, l.Stderr)
		}
	}
	// The path of a socket in the bundle would be too long (unix(7)).
	if len(c.Bundle()) <= 108 {
		t.Errorf("the bundle's path has %d bytes, want more than 108 for this test to mean something", len(c.Bundle()))
	}
}

// 2. There is no event socket and nothing on stdin, and the pipes are closed
// as soon as start has ended.
func TestPoint2NothingOfTheEngineIsNeeded(t *testing.T) {
	ctx := testContext(t)
	pod := sharedPod(ctx, t)
	if bed.pod.Launches()[0].HeldOpen {
		t.Error("the daemon holds the engine's pipes")
	}
	shim := processesOf(pod)[shimName]
	for _, fd := range []string{"0", "1", "2"} {
		if to, err := os.Readlink(procPath(shim, "fd", fd)); err != nil || to != "/dev/null" {
			t.Errorf("the daemon's descriptor %s is %q, error %v", fd, to, err)
		}
	}
	env, err := os.ReadFile(procPath(shim, "environ"))
	if err != nil {
		t.Fatal(err)
	}
	for entry := range strings.SplitSeq(string(env), "\x00") {
		if value, ok := strings.CutPrefix(entry, "TTRPC_ADDRESS="); ok && value != "" {
			t.Errorf("the test is wrong: %s", entry)
		}
	}
}

func procPath(pid int, parts ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(pid)}, parts...)...)
}

// 3. The rootfs is at root.path, mounted by the engine, which unmounts it too.
func TestPoint3RootfsIsMountedAlready(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, app(sharedPod(ctx, t), script("echo mine >/etc/own; exit 4")...), engine.Detached)
	wantExit(ctx, t, c, 4) // the engine complains there when its mount is gone
	if got, err := os.ReadFile(filepath.Join(c.Upper(), "etc/own")); string(got) != "mine\n" {
		t.Errorf("in the container's layer: %q, error %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(c.Bundle(), "rootfs")); err == nil {
		t.Error("the shim made a rootfs in the bundle")
	}
}

// 4. The engine sends signal 0 to check whether a container is alive.
func TestPoint4SignalZeroTellsWhetherItLives(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, app(sharedPod(ctx, t), "sleep", "1000"), engine.Detached)
	if err := c.Kill(ctx, 0); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	if err := c.Kill(ctx, 9); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, c, 137)
	wantCalls(t, c, "Create", "Start", "Kill(0)", "Kill(9)", "Wait", "Kill(0) failed", "Delete", "Shutdown")
	if err := c.Kill(ctx, 0); engine.Code(err) != engine.CodeNotFound {
		t.Errorf("after Delete: %v", err)
	}
	probe := c.Calls()[5]
	if engine.Code(probe.Err) != engine.CodeNotFound {
		t.Errorf("after the exit: %v", probe.Err)
	}
}

// 5. Shutdown follows every Delete. It ends the shim only when no container is
// left.
func TestPoint5ShutdownOfOneIsNotTheEndOfAll(t *testing.T) {
	ctx := testContext(t)
	pod := sharedPod(ctx, t)
	before := processesOf(pod)
	c := start(ctx, t, app(pod, "true"), engine.Detached)
	other := start(ctx, t, app(pod, "sleep", "1000"), engine.Detached)
	wantExit(ctx, t, c, 0)
	if last := c.Calls()[len(c.Calls())-1]; last.String() != "Shutdown" {
		t.Errorf("the last call was %v: %v", last, last.Err)
	}
	for _, one := range []*engine.Container{bed.pod, other} {
		if status, _, err := one.State(ctx); err != nil || status != tasktypes.Status_RUNNING {
			t.Errorf("state %v, error %v", status, err)
		}
	}
	if after := processesOf(pod); after[shimName] != before[shimName] || after[qemuName] != before[qemuName] {
		t.Errorf("the pod's processes were %v and are %v", before, after)
	}
}

// 6. The pid is that of a live host process, and does not change.
func TestPoint6PidIsLiveAndStable(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, app(sharedPod(ctx, t), "sleep", "1000"), engine.Detached)
	for _, one := range []*engine.Container{bed.pod, c} {
		pid := int(one.PID())
		if pid <= 0 || syscall.Kill(pid, 0) != nil {
			t.Errorf("pid %d is not a live process", pid)
		}
		if _, err := os.Readlink(procPath(pid, "ns", "net")); err != nil {
			t.Error(err)
		}
		if _, now, err := one.State(ctx); err != nil || int(now) != pid {
			t.Errorf("pid %d at Start, %d in State, error %v", pid, now, err)
		}
	}
}

// 7. "-tid": a terminal without FIFOs for its output.
func TestPoint7TerminalWithoutStdio(t *testing.T) {
	ctx := testContext(t)
	text := `test -t 0 && test -t 1 && test -t 2 || exit 9; cat /data/blob; exit 5`
	c := start(ctx, t, seedApp(sharedPod(ctx, t), script(text)...), engine.Detached)
	wantExit(ctx, t, c, 5)
}

// 8. A foreground terminal comes with a FIFO for stderr, which stays silent
// and open.
func TestPoint8TerminalWithStderr(t *testing.T) {
	ctx := testContext(t)
	text := `echo out; echo err >&2; read line; echo "got $line"; sleep 0.4; stty size; exit 3`
	c := start(ctx, t, seedApp(sharedPod(ctx, t), script(text)...), engine.Attached)
	console := c.Console()
	if err := console.Out.Await(ctx, "err\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.Resize(ctx, "", 43, 101); err != nil {
		t.Error(err)
	}
	if err := console.Type("a word\n"); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, c, 3)
	if err := console.Wait(ctx); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"out\r\n", "got a word\r\n", "43 101\r\n"} {
		if !strings.Contains(console.Out.String(), want) {
			t.Errorf("the terminal lacks %q: %q", want, console.Out.String())
		}
	}
	if got := console.Err.String(); got != "" {
		t.Errorf("stderr has %q", got)
	}
}

// fifosOf lists the FIFOs of a container's start that a process has open, by
// their names.
func fifosOf(pid int, c *engine.Container) []string {
	entries, _ := os.ReadDir(procPath(pid, "fd"))
	var names []string
	for _, e := range entries {
		to, err := os.Readlink(procPath(pid, "fd", e.Name()))
		if err == nil && strings.Contains(to, c.ID+"/start/") {
			names = append(names, filepath.Base(strings.TrimSuffix(to, " (deleted)")))
		}
	}
	slices.Sort(names)
	return names
}

// bigOutput is how much the test of large output prints, in bytes. The size is
// iSulad's.
const bigOutput = 820 << 10

// 9. FIFOs are opened once, before they are unlinked. Both outputs stay open
// until the process exits, even if it closes its stderr.
func TestPoint9FIFOsAreOpenedOnceAndClosedTogether(t *testing.T) {
	ctx := testContext(t)
	pod := sharedPod(ctx, t)
	text := `echo warning >&2; exec 2>&-; head -c ` + strconv.Itoa(bigOutput) + ` /data/blob; read line; sleep 0.3; printf END`
	c := start(ctx, t, app(pod, script(text)...), engine.Attached)
	console := c.Console()
	if left, err := filepath.Glob(filepath.Join(bed.opts.Dir, "var/run/isulad", engine.Runtime, c.ID, "start/*")); len(left) > 0 {
		t.Fatalf("the test is wrong: %v are still there, error %v", left, err)
	}
	if got, want := fifosOf(processesOf(pod)[shimName], c), []string{"err-fifo", "in-fifo", "out-fifo"}; !slices.Equal(got, want) {
		t.Errorf("the shim has open %v, want %v", got, want)
	}
	if err := console.Type("go on\n"); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, c, 0)
	if err := console.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	want := string(blobPart(bigOutput)) + "END"
	if got := console.Out.String(); got != want {
		t.Errorf("stdout has %d bytes, want %d; they end with %q", len(got), len(want), got[max(0, len(got)-20):])
	}
	if got := console.Err.String(); got != "warning\n" {
		t.Errorf("stderr has %q", got)
	}
	if len(console.Ended) != 2 {
		t.Errorf("of the two outputs these ended within iSulad's patience: %v", console.Ended)
	}
}

// 10. Execs have neither user nor capabilities and are never deleted; Pids is
// not empty; Stats is cgroup v1's.
func TestPoint10ExecPidsAndStats(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, app(sharedPod(ctx, t), script("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 1000")...), engine.Detached)
	if got := execOut(ctx, t, c, "sh", "-c", "id -u; touch /tmp/f && chown 1000:1000 /tmp/f && stat -c %u /tmp/f"); got != "0\n1000\n" {
		t.Errorf("an exec's user and power: %q", got)
	}
	pids, err := c.Pids(ctx)
	// iSulad looks up the first pid among the host's processes.
	if err != nil || len(pids) == 0 || pids[0].Pid != c.PID() {
		t.Errorf("pids %v, error %v, want %d first", pids, err, c.PID())
	}
	m, err := c.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]uint64{
		"cpu.usage.total": m.GetCPU().GetUsage().GetTotal(), "memory.usage.usage": m.GetMemory().GetUsage().GetUsage(),
		"memory.usage.limit": m.GetMemory().GetUsage().GetLimit(), "pids.current": m.GetPids().GetCurrent(),
		"memory.rss": m.GetMemory().GetRSS(),
	} {
		if value == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	for _, entry := range m.GetBlkio().GetIoServiceBytesRecursive() {
		if entry.Op != "read" && entry.Op != "write" {
			t.Errorf("block I/O operation %q, want lower case", entry.Op)
		}
	}
	if err := c.Kill(ctx, 9); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, c, 137) // execs that were not deleted do not prevent it
}
