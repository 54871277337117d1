package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// becomeReaper makes this process inherit orphans, as PID 1 does, and runs a
// Reaper for the test's duration.
func becomeReaper(t *testing.T) *Reaper {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	r := NewReaper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	})
	return r
}

// zombies lists this process's zombie children.
func zombies(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, ok := strings.Cut(string(stat), ") ")
		if ok && strings.HasPrefix(rest, fmt.Sprintf("Z %d ", os.Getpid())) {
			list = append(list, string(stat))
		}
	}
	return list
}

// eventually polls for what another process does; nothing signals that a zombie
// is gone.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// track runs a command as libcontainer runs processes: it waits for the command
// some time after its end.
func track(r *Reaper, script string) error {
	cmd := exec.Command("/bin/sh", "-c", script)
	end := r.Begin()
	if err := cmd.Start(); err != nil {
		end(0)
		return err
	}
	end(cmd.Process.Pid)
	err := cmd.Wait()
	r.Done(cmd.Process.Pid)
	return err
}

func TestReaperTakesOrphansOnly(t *testing.T) {
	r := becomeReaper(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			// Each leaves five orphans, which end before or after it does.
			err := track(r, fmt.Sprintf("for d in 0 0 0.01 0.05 0.2; do sleep $d & done; exit %d", i%7))
			exit, ok := err.(*exec.ExitError) //nolint:errorlint // Wait returns it bare.
			switch {
			case i%7 == 0 && err != nil:
				t.Errorf("child %d: %v, want success", i, err)
			case i%7 != 0 && (!ok || exit.ExitCode() != i%7):
				t.Errorf("child %d: %v, want exit status %d", i, err, i%7)
			}
		})
	}
	wg.Wait()
	eventually(t, "all orphans are reaped", func() bool { return len(zombies(t)) == 0 && !hasChildren(t) })
}

func hasChildren(t *testing.T) bool {
	t.Helper()
	_, err := peek(unix.P_ALL, 0)
	return err == nil
}

func TestReaperSparesYoungZombiesDuringStart(t *testing.T) {
	r := becomeReaper(t)
	old := orphanOf(t, r) // Born before the start begins.
	time.Sleep(20 * time.Millisecond)
	end := r.Begin()
	young := exec.Command("/bin/true")
	if err := young.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old orphan is reaped", func() bool { return unix.Kill(old, 0) != nil })
	r.kick()
	if err := young.Wait(); err != nil {
		t.Errorf("the young child was stolen: %v", err)
	}
	end(0)
}

// orphanOf makes an orphan that sleeps, and returns its PID.
func orphanOf(t *testing.T, r *Reaper) int {
	t.Helper()
	end := r.Begin()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end(cmd.Process.Pid)
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	r.Done(cmd.Process.Pid)
	return pid
}

func TestReaperAfterFailedStart(t *testing.T) {
	r := becomeReaper(t)
	end := r.Begin()
	cmd := exec.Command("/bin/true") // It is never waited for.
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end(0)
	eventually(t, "the left child is reaped", func() bool { return unix.Kill(cmd.Process.Pid, 0) != nil })
	_ = cmd.Process.Release()
}

func TestParseStartTicks(t *testing.T) {
	fields := "S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 " // fields 3 to 21
	tests := []struct {
		stat string
		want uint64
		ok   bool
	}{
		{"12 (sh) " + fields + "2372 99 88", 2372, true},
		{"12 (a) b (c)) " + fields + "7", 7, true},
		{"12 (sh) " + fields, 0, false},
		{"12 sh " + fields + "7", 0, false},
		{"", 0, false},
	}
	for _, test := range tests {
		got, ok := parseStartTicks([]byte(test.stat))
		if got != test.want || ok != test.ok {
			t.Errorf("%q: %d, %v, want %d, %v", test.stat, got, ok, test.want, test.ok)
		}
	}
}

func FuzzParseStartTicks(f *testing.F) {
	f.Add([]byte("1 (init) S 0 1 1"))
	f.Fuzz(func(_ *testing.T, stat []byte) { parseStartTicks(stat) })
}

func TestOwnStartTicks(t *testing.T) {
	ticks, ok := startTicks(os.Getpid())
	if now := bootTicks(); !ok || ticks > now || ticks+3600*userHZ < now {
		t.Errorf("pid %s started at %d, %v; now it is %d", strconv.Itoa(os.Getpid()), ticks, ok, now)
	}
}
