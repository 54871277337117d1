package service

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// killOOM has the OOM killer kill once, and reports it.
func (c *fakeContainer) killOOM() {
	c.mu.Lock()
	c.kills++
	c.mu.Unlock()
	c.oomHints <- struct{}{}
}

// A kill is reported while the container runs, and once.
func TestOOMKillIsReportedAsItHappens(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	event, added := pod.events.peek()
	if event != nil {
		t.Fatalf("event %v", event)
	}
	runtime.last.killOOM()
	<-added
	event, _ = pod.events.peek()
	if got := event.GetOom().GetContainerId(); got != "c" {
		t.Fatalf("event %v", event)
	}
	pod.events.drop(event)
	runtime.last.oomHints <- struct{}{} // Another value of memory.events has changed.
	runtime.last.init.exit(0)
	wait(t, pod, "c", "")
	if diff := cmp.Diff([]string{"exit c"}, told(pod)); diff != "" {
		t.Error(diff)
	}
}

// No kill is reported after the container's exit: the watch has ended.
func TestOOMWatchEndsBeforeExit(t *testing.T) {
	for range 50 {
		pod, runtime := testPod(t)
		startContainer(t, pod, "c")
		runtime.last.lateKills = 1
		runtime.last.init.exit(137)
		wait(t, pod, "c", "")
		if _, err := pod.delete(t.Context(), "c", ""); err != nil {
			t.Error(err)
		}
		pod.Wait()
		if diff := cmp.Diff([]string{"oom c", "exit c"}, told(pod)); diff != "" {
			t.Fatal(diff)
		}
	}
}

// An exec that outlives its container's init, and has an OOM kill then, has that
// reported by nothing: engines take a kill for the cause of the container's exit.
func TestOOMAfterExit(t *testing.T) {
	t.Parallel() // It waits for execsEnd.
	pod, runtime := testPod(t)
	startContainer(t, pod, "c")
	target := runtime.last
	target.mu.Lock()
	target.hangs = true
	target.mu.Unlock()
	startExec(t, pod, "c", "e")
	target.init.exit(0)
	wait(t, pod, "c", "")
	target.mu.Lock()
	target.kills = 1
	target.mu.Unlock()
	target.execs[0].exit(137)
	wait(t, pod, "c", "e")
	if diff := cmp.Diff([]string{"exit c", "exit c e"}, told(pod)); diff != "" {
		t.Error(diff)
	}
}

// Without a watch a kill is reported before the exit.
func TestOOMWithoutWatch(t *testing.T) {
	pod, runtime := testPod(t)
	runtime.watchErr = errors.New("the file cannot be polled")
	startContainer(t, pod, "c")
	runtime.last.kills = 1
	runtime.last.init.exit(137)
	wait(t, pod, "c", "")
	if diff := cmp.Diff([]string{"oom c", "exit c"}, told(pod)); diff != "" {
		t.Error(diff)
	}
}
