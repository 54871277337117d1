package service

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/spans"
)

// bareGuest returns a guest that has no pod yet.
func bareGuest(t *testing.T) (*Pod, *fakeRuntime) {
	t.Helper()
	pod, runtime := testPod(t)
	pod.stage, pod.hostname = bare, ""
	pod.config.Spans = spans.New(time.Now())
	return pod, runtime
}

// A guest is prepared, if at all, before it is set up, which is done once.
func TestStages(t *testing.T) {
	prepare := func(p *Pod) error { return p.prepareGuest(t.Context(), &api.PrepareRequest{}) }
	setup := func(p *Pod) error { return p.setup(t.Context(), &api.SetupSandboxRequest{}) }
	type call = func(*Pod) error
	for name, test := range map[string]struct {
		calls []call
		fails bool // the last one
	}{
		"set up":                 {[]call{setup}, false},
		"prepared, set up":       {[]call{prepare, setup}, false},
		"prepared twice":         {[]call{prepare, prepare, setup}, false},
		"set up twice":           {[]call{setup, setup}, true},
		"prepared after set up":  {[]call{setup, prepare}, true},
		"set up twice, prepared": {[]call{prepare, setup, setup}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod, _ := bareGuest(t)
			for i, call := range test.calls {
				err, last := call(pod), i == len(test.calls)-1
				if wanted := last && test.fails; errdefs.IsFailedPrecondition(err) != wanted || err != nil && !wanted {
					t.Errorf("call %d: %v", i+1, err)
				}
			}
		})
	}
}

// A guest that cannot be reseeded is not prepared.
func TestPrepareReseeds(t *testing.T) {
	pod, _ := bareGuest(t)
	if err := pod.prepareGuest(t.Context(), &api.PrepareRequest{Entropy: []byte("few")}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("few bytes of entropy: %v", err)
	}
}

// A storage that cannot be mounted leaves a guest that takes nothing.
func TestPrepareFails(t *testing.T) {
	pod, _ := bareGuest(t)
	if err := pod.prepareGuest(t.Context(), &api.PrepareRequest{Storages: []*api.Storage{{Driver: "floppy"}}}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("prepare: %v", err)
	}
	if _, err := pod.create(t.Context(), createRequest(t, "c")); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("create: %v", err)
	}
	if err := pod.setup(t.Context(), &api.SetupSandboxRequest{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("set up: %v", err)
	}
}

// A pod does not begin while an earlier container is there.
func TestSetupWithContainers(t *testing.T) {
	pod, _ := bareGuest(t)
	if err := pod.prepareGuest(t.Context(), &api.PrepareRequest{}); err != nil {
		t.Fatal(err)
	}
	create(t, pod, "early")
	if err := pod.setup(t.Context(), &api.SetupSandboxRequest{}); !errdefs.IsFailedPrecondition(err) {
		t.Error(err)
	}
}

// A pod sees nothing of the containers that were there before it.
func TestContainersBeforeThePod(t *testing.T) {
	pod, runtime := bareGuest(t)
	if err := pod.prepareGuest(t.Context(), &api.PrepareRequest{}); err != nil {
		t.Fatal(err)
	}
	pod.config.Spans.Begin("", "boot")()
	startContainer(t, pod, "early")
	runtime.last.init.exit(0)
	wait(t, pod, "early", "")
	if _, err := pod.delete(t.Context(), "early", ""); err != nil {
		t.Fatal(err)
	}
	if list, _ := pod.config.Spans.Spans(); len(told(pod)) == 0 || len(list) < 2 {
		t.Fatalf("there is nothing to forget: events %v, spans %v", told(pod), list)
	}
	pod.hostname = "early"
	if err := pod.setup(t.Context(), &api.SetupSandboxRequest{}); err != nil {
		t.Fatal(err)
	}
	if events := told(pod); len(events) != 0 || pod.hostname != "" {
		t.Errorf("the pod has the events %v; its hostname is %q", events, pod.hostname)
	}
	if list, forgotten := pod.config.Spans.Spans(); len(list) != 1 || list[0].Name != "boot" || forgotten != 0 {
		t.Errorf("spans %v, %d forgotten", list, forgotten)
	}
	create(t, pod, "early")
}

// A guest that will be copied loads its drivers, but its devices do not get them.
func TestPrepareDrivers(t *testing.T) {
	for _, isTemplate := range []bool{false, true} {
		pod, _ := bareGuest(t)
		machine := &fakeMachine{}
		pod.machine = machine
		if err := pod.prepareGuest(t.Context(), &api.PrepareRequest{IsTemplate: isTemplate}); err != nil {
			t.Fatal(err)
		}
		if machine.preloaded != isTemplate || machine.late == isTemplate {
			t.Errorf("template %t: drivers loaded alone: %t, for the devices: %t", isTemplate, machine.preloaded, machine.late)
		}
	}
	pod, _ := bareGuest(t)
	pod.machine = &fakeMachine{err: errors.New("no such driver")}
	if err := pod.prepareGuest(t.Context(), &api.PrepareRequest{IsTemplate: true}); err == nil || !strings.Contains(err.Error(), "no such driver") {
		t.Error(err)
	}
}
