package containerd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/katabox/katabox/tests/harness"
)

const (
	execsInSequence = 200
	execsAtOnce     = 20
)

// Many execs, in sequence and concurrently, leave nothing in the shim, the VMM,
// the file server or the guest.
func TestManyExecsLeaveNothing(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := idle(ctx, t, newPod(ctx, t, d))
		// Once before counting: some things are started at first use, and stay.
		execsTogether(ctx, t, c)
		execOut(ctx, t, c, harness.ExecConfig{Args: []string{"true"}})
		before := usageOf(ctx, t, d, c)
		for i := range execsInSequence {
			want := fmt.Sprintf("exec %d\n", i)
			if got := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"echo", "exec", fmt.Sprint(i)}}); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		execsTogether(ctx, t, c)
		before.awaitSame(ctx, t, d, c)
	})
}

// execsTogether runs execs concurrently, each with its own output and exit
// code.
func execsTogether(ctx context.Context, t *testing.T, c *harness.Container) {
	t.Helper()
	processes := make([]*harness.Process, execsAtOnce)
	for i := range processes {
		p, err := c.Exec(ctx, harness.ExecConfig{Args: script(fmt.Sprintf("echo %d; sleep 0.5; exit %d", i, i))})
		if err != nil {
			t.Fatal(err)
		}
		processes[i] = p
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i, p := range processes {
		group.Go(func() error {
			code, err := p.Run(groupCtx)
			if err == nil && (code != uint32(i) || p.Out.String() != fmt.Sprintln(i)) {
				err = fmt.Errorf("exec %d: exit code %d, output %q", i, code, p.Out)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if err := p.Remove(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// usage is what a pod's processes hold.
type usage struct {
	// Files are the open file descriptors of each of the pod's processes.
	Files map[string]int
	// Guest is the number of processes in the container.
	Guest int
	// threads are those of each process. Go keeps threads that it does not
	// need, so these may grow a little.
	threads map[string]int
}

// moreThreads is how many more threads a process may have. A leak of one per
// exec would be two hundred.
const moreThreads = 10

func usageOf(ctx context.Context, t *testing.T, d *harness.Daemon, c *harness.Container) usage {
	t.Helper()
	procs, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := c.Task.Pids(ctx)
	if err != nil {
		t.Fatal(err)
	}
	u := usage{Files: map[string]int{}, threads: map[string]int{}, Guest: len(pids)}
	for _, p := range procs {
		name := fmt.Sprintf("%s %d", p.Kind(), p.PID)
		u.Files[name] = entries(t, p.PID, "fd")
		u.threads[name] = entries(t, p.PID, "task")
	}
	return u
}

// entries counts what is in a directory of proc(5).
func entries(t *testing.T, pid int, dir string) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, dir))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// awaitSame waits until the usage is what it was: what an exec held is released
// a moment after its Delete.
func (u usage) awaitSame(ctx context.Context, t *testing.T, d *harness.Daemon, c *harness.Container) {
	t.Helper()
	ctx, cancel := context.WithTimeout(d.Context(ctx), 5*time.Second)
	defer cancel()
	var diff string
	for {
		now := usageOf(context.WithoutCancel(ctx), t, d, c)
		if diff = cmp.Diff(u, now, cmp.FilterPath(hidden, cmp.Ignore())); diff == "" {
			u.wantThreads(t, now)
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("the execs left something (-before +after):\n%s", diff)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hidden are the fields that are not compared as they are.
func hidden(p cmp.Path) bool {
	return slices.Contains([]string{".threads"}, p.Last().String())
}

func (u usage) wantThreads(t *testing.T, now usage) {
	t.Helper()
	for name, before := range u.threads {
		t.Logf("%s: %d files, %d threads before, %d after", name, u.Files[name], before, now.threads[name])
		if now.threads[name] > before+moreThreads {
			t.Errorf("%s has %d threads, had %d", name, now.threads[name], before)
		}
	}
}
