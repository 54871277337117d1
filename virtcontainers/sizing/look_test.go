package sizing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// What a pod's cgroups have lost is set again also while the machine does not run, which
// may be for days.
func TestSettingsAreRegainedAsleep(t *testing.T) {
	p, _ := chargedPod(t, limitedCgroup(t, 3000))
	p.opts.EnterAwake = func(context.Context) (func(), error) { return nil, errors.New("it sleeps") }
	limits := func() (all []string) {
		for _, dir := range p.cgroup.Dirs() {
			for _, file := range []string{"/memory.limit_in_bytes", "/memory.max"} {
				if text, err := os.ReadFile(dir + file); err == nil {
					all = append(all, string(text))
				}
			}
		}
		return all
	}
	want := limits()
	if err := p.cgroup.SetBound(hostcgroup.Bound{Memory: 2 * p.bounded}); err != nil {
		t.Fatal(err)
	}
	if len(want) == 0 || limits()[0] == want[0] {
		t.Fatalf("the bounds are %q", want)
	}
	if err := p.setAgain(t.Context()); err != nil {
		t.Errorf("without pinned vCPUs: %v", err)
	}
	for i, got := range limits() {
		if got != want[i] {
			t.Errorf("a bound is %s, want %s", got, want[i])
		}
	}
	p.opts.Config.Runtime.PinVCPUs = true
	if err := p.setAgain(t.Context()); err != nil {
		t.Errorf("with pinned vCPUs: %v", err)
	}
	if p.pinned != "" || len(p.smaller) == 0 {
		t.Errorf("of a machine that does not run the vCPUs were pinned: %q, or are not to be", p.pinned)
	}
}

// losingPod returns a pod in a v2 cgroup, a function that turns off one of its controllers
// above it, as systemd does, and one that reports whether the cgroup has that controller.
func losingPod(t *testing.T) (p *Pod, lose func(), has func() bool) {
	t.Helper()
	root, controller := v2Controller(t)
	parent := fmt.Sprintf("/kbtest-lose-%d", os.Getpid())
	turn := func(dir, how string) error {
		return os.WriteFile(dir+"/cgroup.subtree_control", []byte(how+controller), 0)
	}
	if !hasWord(root+"/cgroup.subtree_control", controller) {
		if err := turn(root, "+"); err != nil {
			t.Skipf("the host's cgroups cannot be written: %v", err)
		}
		t.Cleanup(func() { _ = turn(root, "-") }) // refused while another test uses it
	}
	err := os.Mkdir(root+parent, 0o755)
	if err == nil {
		t.Cleanup(func() {
			if err := os.Remove(root + parent); err != nil {
				t.Error(err)
			}
		})
		err = turn(root+parent, "+")
	}
	if err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	made, err := hostcgroup.New(hostcgroup.Options{Root: root, Path: parent + "/c", Name: "pod", Only: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := made.Make(); err != nil {
		t.Fatal(err)
	}
	p = newPod(t)
	p.cgroup, p.unaccounted = &cgroup{Cgroup: made}, true // no process has the machine's ID
	lose = func() {
		if err := turn(root+parent, "-"); err != nil {
			t.Fatal(err)
		}
	}
	return p, lose, func() bool { return hasWord(made.Dirs()[0]+"/cgroup.controllers", controller) }
}

// v2Controller finds the host's v2 tree and a controller there, if it can the memory's.
func v2Controller(t *testing.T) (root, controller string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("makes cgroups, which needs root")
	}
	for _, root := range []string{hostcgroup.DefaultRoot, hostcgroup.DefaultRoot + "/unified"} {
		if file := root + "/cgroup.controllers"; hasWord(file, "memory") {
			return root, "memory"
		} else if text, _ := os.ReadFile(file); len(text) > 1 {
			return root, strings.Fields(string(text))[0]
		}
	}
	t.Skip("the host has no v2 tree with controllers")
	return "", ""
}

func hasWord(file, word string) bool {
	text, _ := os.ReadFile(file)
	return slices.Contains(strings.Fields(string(text)), word)
}

// What a pod's cgroups lose is set again each time, also while what needs the machine
// waits until that runs: to shrink it, and to bind its vCPUs.
func TestWatchRegainsAsleep(t *testing.T) {
	for what, pins := range map[string]bool{"to shrink": false, "to pin": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testWatchRegainsAsleep(t, pins) })
		})
	}
}

func testWatchRegainsAsleep(t *testing.T, pins bool) {
	p, lose, has := losingPod(t)
	p.opts.Config.Runtime.PinVCPUs = pins
	awake := make(chan struct{})
	p.opts.EnterAwake = func(ctx context.Context) (func(), error) {
		select {
		case <-awake:
			return func() {}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { p.Watch(ctx) })
	defer watch.Wait()
	defer cancel()
	if !pins {
		p.mayShrink()
	}
	synctest.Wait()
	for n := range 2 {
		p.placed = ""
		if lose(); has() {
			t.Fatal("nothing is lost")
		}
		time.Sleep(lookEvery + time.Second)
		synctest.Wait()
		if !has() || p.placed == "" {
			t.Errorf("loss %d: the controller is on again: %v, the place is set to %q", n+1, has(), p.placed)
		}
	}
	if p.pinned != "" {
		t.Error("the vCPUs of a machine that does not run were pinned")
	}
	if !pins {
		return // it ends asleep
	}
	close(awake)
	synctest.Wait()
	if p.pinned == "" {
		t.Error("the vCPUs are not pinned once the machine runs")
	}
}
