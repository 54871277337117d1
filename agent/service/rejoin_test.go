package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/api"
)

func rejoin(t *testing.T, p *Pod, fromTo ...string) error {
	t.Helper()
	req := &api.RejoinRequest{}
	for i := 0; i < len(fromTo); i += 2 {
		req.Containers = append(req.Containers, &api.RenamedContainer{From: fromTo[i], To: fromTo[i+1]})
	}
	return p.rejoin(t.Context(), req)
}

// A container has its other id in calls, errors and events, those that wait
// included, and is deleted with what it was made with.
func TestRejoin(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "stays")
	startContainer(t, pod, "old")
	startExec(t, pod, "old", "e1")
	startExec(t, pod, "old", "e2")
	pod.first = "old"
	runtime.last.kills = 1
	runtime.last.execs[0].exit(1)
	wait(t, pod, "old", "e1")
	if err := rejoin(t, pod, "old", "new", "stays", "stays"); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.task("old"); !errdefs.IsNotFound(err) || pod.first != "new" {
		t.Errorf("the old id: %v; the first container is %s", err, pod.first)
	}
	pod.first = "elsewhere"
	if _, err := pod.start(t.Context(), "new", ""); err == nil || !strings.Contains(err.Error(), "container new") {
		t.Errorf("an error: %v", err)
	}
	runtime.last.kills = 2 // While the first waits, a second is not reported.
	runtime.last.init.exit(2)
	wait(t, pod, "new", "")
	want := []string{"oom new", "exit new e1", "exit new e2", "exit new"}
	if diff := cmp.Diff(want, told(pod)); diff != "" {
		t.Error(diff)
	}
	if _, err := pod.delete(t.Context(), "new", "e1"); err != nil {
		t.Error(err)
	}
	if _, err := pod.delete(t.Context(), "new", ""); err != nil || runtime.last.destroyed != 1 {
		t.Errorf("destroyed %d times: %v", runtime.last.destroyed, err)
	}
	if _, err := pod.task("new"); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
	create(t, pod, "old")
	if err := pod.kill(&taskapi.KillRequest{ID: "stays", Signal: 9}); err != nil {
		t.Error(err)
	}
}

// A request that cannot be done changes nothing.
func TestRejoinRefuses(t *testing.T) {
	many := []string{}
	for i := range api.MaxRenamedContainers + 1 {
		many = append(many, fmt.Sprint("x", i), fmt.Sprint("y", i))
	}
	tests := []struct {
		name   string
		fromTo []string
		is     func(error) bool
	}{
		{"absent", []string{"a", "new", "x", "y"}, errdefs.IsNotFound},
		{"twice", []string{"a", "new", "a", "newer"}, errdefs.IsNotFound},
		{"taken", []string{"a", "new", "b", "c"}, errdefs.IsAlreadyExists},
		{"taken as yet", []string{"b", "new", "a", "b"}, errdefs.IsAlreadyExists},
		{"two of one id", []string{"a", "new", "b", "new"}, errdefs.IsAlreadyExists},
		{"path as id", []string{"a", "new", "b", "../x"}, errdefs.IsInvalidArgument},
		{"too many", many, errdefs.IsInvalidArgument},
	}
	pod, _ := testPod(t)
	for _, id := range []string{"a", "b", "c"} {
		create(t, pod, id)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := rejoin(t, pod, test.fromTo...); !test.is(err) {
				t.Error(err)
			}
		})
	}
	for _, id := range []string{"a", "b", "c"} {
		if task, err := pod.task(id); err != nil || task.id.String() != id {
			t.Errorf("%s: %v", id, err)
		}
	}
	entropy := &api.RejoinRequest{Entropy: []byte("few"), Containers: []*api.RenamedContainer{{From: "a", To: "new"}}}
	if err := pod.rejoin(t.Context(), entropy); !errdefs.IsInvalidArgument(err) {
		t.Errorf("few bytes of entropy: %v", err)
	}
	if _, err := pod.task("a"); err != nil {
		t.Errorf("renamed without entropy: %v", err)
	}
	pod.stage = bare
	if err := rejoin(t, pod); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("without a pod: %v", err)
	}
}

// An exit has the id that its container has when it is reported, whenever that is.
func TestRejoinWhileProcessesEnd(t *testing.T) {
	pod, runtime := testPod(t)
	const n = 20
	startContainer(t, pod, "c0")
	for i := range n {
		startExec(t, pod, "c0", fmt.Sprint(i))
	}
	ends := runtime.last.execs
	var all sync.WaitGroup
	all.Go(func() {
		for _, p := range ends {
			p.exit(0)
		}
	})
	for i := range n {
		if err := rejoin(t, pod, fmt.Sprint("c", i), fmt.Sprint("c", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	last := fmt.Sprint("c", n)
	for i := range n {
		wait(t, pod, last, fmt.Sprint(i))
	}
	for _, word := range told(pod) {
		if !strings.HasPrefix(word, "exit "+last+" ") {
			t.Error(word)
		}
	}
}

// An event that was being sent to the host before is sent to the other one, too.
func TestRejoinRepeatsWhatWasBeingSent(t *testing.T) {
	pod, runtime := testPod(t)
	startContainer(t, pod, "old")
	runtime.last.init.exit(0)
	ctx, cancel := context.WithCancel(t.Context())
	err := pod.events.stream(ctx, func(e *api.Event) error {
		defer cancel()
		if err := rejoin(t, pod, "old", "new"); err != nil {
			t.Error(err)
		}
		if id := e.GetExit().GetContainerId(); id != "old" {
			t.Errorf("the event that is being sent has become that of %s", id)
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"new"}, take(t, pod.events, 1)); diff != "" {
		t.Error(diff)
	}
}
