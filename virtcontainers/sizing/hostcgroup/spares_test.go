package hostcgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// What a spare's process starts in its cgroup goes back with it, and nothing is
// left.
func TestSpareLeavesItsCgroup(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		c, err := NewForSpare(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(c.Release(), c.Remove(context.Background())) })
		home, err := Self()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Make(), c.SetBound(Bound{Memory: 1 << 30, Processes: 77}), c.Add(os.Getpid())); err != nil {
			t.Fatal(err)
		}
		child := sleeper(t)
		for what, pid := range map[string]int{"spare": os.Getpid(), "machine": child} {
			now, err := cgroupsOf(pid)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.places {
				if want := p.dir("/kata_overhead/spares/" + strconv.Itoa(os.Getpid())); p.of(now) != want {
					t.Errorf("the %s is in %s, want %s", what, p.of(now), want)
				}
			}
		}
		for range 2 {
			if err := errors.Join(c.Release(), c.Remove(t.Context())); err != nil {
				t.Error(err)
			}
		}
		now, err := cgroupsOf(child)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.places {
			if p.of(now) != p.of(home) {
				t.Errorf("the machine is in %s, was in %s", p.of(now), p.of(home))
			}
		}
		for _, dir := range c.Dirs() {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	})
}

// The cgroup of a killed process is removed, and no other.
func TestSweepSpares(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		dead := exec.Command("true")
		if err := dead.Run(); err != nil {
			t.Fatal(err)
		}
		c, err := NewForSpare(root)
		if err == nil {
			err = c.Make()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Remove(context.Background()); err != nil {
				t.Error(err)
			}
		})
		for _, own := range c.Dirs() {
			left := filepath.Join(filepath.Dir(own), strconv.Itoa(dead.Process.Pid))
			if err := os.Mkdir(left, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(left) })
		}
		if err := SweepSpares(root); err != nil {
			t.Error(err)
		}
		for _, own := range c.Dirs() {
			if _, err := os.Stat(own); err != nil {
				t.Error(err)
			}
			left := filepath.Join(filepath.Dir(own), strconv.Itoa(dead.Process.Pid))
			if _, err := os.Stat(left); err == nil {
				t.Errorf("%s is left", left)
			}
		}
	})
}
