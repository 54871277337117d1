package container

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
)

// quickFreezer is a cgroup that freezes at once, or when it is let.
type quickFreezer struct {
	cgroups.Manager
	state  cgroups.FreezerState
	states []cgroups.FreezerState
	begun  chan struct{}
	let    chan struct{}
	file   string
}

func (q *quickFreezer) Freeze(state cgroups.FreezerState) error {
	if q.let != nil {
		close(q.begun)
		<-q.let
	}
	q.state = state
	q.states = append(q.states, state)
	return os.WriteFile(q.file, []byte(map[cgroups.FreezerState]string{cgroups.Frozen: "1\n", cgroups.Thawed: "0\n"}[state]), 0o600)
}

func (q *quickFreezer) GetFreezerState() (cgroups.FreezerState, error) { return q.state, nil }

// newHeld makes a container whose cgroup is a directory with those events.
func newHeld(t *testing.T, q *quickFreezer, events string) (c *Container, state func() string) {
	t.Helper()
	dir := t.TempDir()
	freeze := filepath.Join(dir, "cgroup.freeze")
	err1 := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte(events), 0o600)
	err2 := os.WriteFile(freeze, nil, 0o600)
	cgroup, err3 := filepath.Rel(cgroupRoot, dir)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	q.file = freeze
	c = &Container{id: "c", cgroup: cgroup, freezer: freezer{cgroups: q}, init: selfAsInit(t)}
	return c, func() string {
		text, err := os.ReadFile(freeze)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

// A signal to all freezes nothing while the stage starts a process, and a start waits
// for the end of a hold.
func TestHoldAndStart(t *testing.T) {
	c, state := newHeld(t, &quickFreezer{}, "frozen 1\n")
	end, err := c.beginStart()
	if err != nil {
		t.Fatal(err)
	}
	release := c.hold()
	if got := state(); got != "" {
		t.Errorf("while a process is started the cgroup is set to %q", got)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	end()
	release = c.hold()
	if got := state(); got != "1" {
		t.Errorf("after the start it is set to %q", got)
	}
	begun := make(chan string)
	go func() {
		end, err := c.beginStart()
		if err == nil {
			defer end()
		}
		begun <- state()
	}()
	select {
	case <-begun:
		t.Error("a start did not wait for the hold's end")
	case <-time.After(20 * time.Millisecond):
		if err := release(); err != nil {
			t.Error(err)
		}
		if got := <-begun; got != "0" {
			t.Errorf("then a start begins with %q", got)
		}
	}
}

// Pause waits for starts by the stage, and fails if one hangs. None begins in a container
// that is paused.
func TestPauseAndStart(t *testing.T) {
	for name, takes := range map[string]time.Duration{"ends": time.Second, "hangs": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			q := &quickFreezer{state: cgroups.Thawed}
			c, _ := newHeld(t, q, "frozen 0\n")
			end, err := c.beginStart()
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(takes, end)
			begun := time.Now()
			err = c.Pause()
			waited := time.Since(begun)
			if takes < startTime {
				if err != nil || waited < takes || !slices.Equal(q.states, []cgroups.FreezerState{cgroups.Frozen}) {
					t.Errorf("%s: %v after %v, states %v", name, err, waited, q.states)
				}
				if _, err := c.beginStart(); !errors.Is(err, libcontainer.ErrPaused) || !errdefs.IsFailedPrecondition(err) {
					t.Errorf("start in a paused container: %v", err)
				}
				return
			}
			if !errdefs.IsUnavailable(err) || waited < startTime || waited > 2*startTime || len(q.states) > 0 {
				t.Errorf("%s: %v after %v, states %v", name, err, waited, q.states)
			}
			time.Sleep(takes)
		})
	}
}

// Starts that overlap without an end keep no pause from the container: those that come
// after it wait, and find it paused.
func TestPauseAmongStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newHeld(t, &quickFreezer{state: cgroups.Thawed}, "frozen 0\n")
		var starts sync.WaitGroup
		for i := range 3 {
			starts.Go(func() {
				time.Sleep(time.Duration(i) * 30 * time.Millisecond)
				for {
					end, err := c.beginStart()
					if err != nil {
						if !errors.Is(err, libcontainer.ErrPaused) {
							t.Error(err)
						}
						return
					}
					time.Sleep(100 * time.Millisecond)
					end()
				}
			})
		}
		time.Sleep(time.Second)
		begun := time.Now()
		if err := c.Pause(); err != nil || time.Since(begun) > 200*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		starts.Wait()
	})
}

// A signal to all waits neither for a pause that lasts nor for an update.
func TestHoldDuringPause(t *testing.T) {
	q := &quickFreezer{state: cgroups.Thawed, begun: make(chan struct{}), let: make(chan struct{})}
	c, state := newHeld(t, q, "frozen 0\n")
	paused := make(chan error)
	go func() { paused <- c.Pause() }()
	<-q.begun
	c.cgroupMu.Lock()
	defer c.cgroupMu.Unlock()
	if err := c.hold()(); err != nil || state() != "" {
		t.Errorf("%v, the cgroup is set to %q", err, state())
	}
	close(q.let)
	if err := <-paused; err != nil {
		t.Error(err)
	}
}
