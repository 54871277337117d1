package service

import (
	"slices"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
	"github.com/katabox/katabox/internal/spans"
)

// A container's creation and start are reported, on Hello's clock.
func TestTimelineOfAContainer(t *testing.T) {
	pod, _ := testPod(t)
	asked := time.Now()
	pod.config.Spans = spans.New(asked.Add(-guest.SinceBoot()))
	// Zero was read from two clocks, one after the other; spans are whole microseconds.
	slack := uint64(time.Since(asked).Microseconds()) + 2
	client := dialPod(t, pod)
	service, task := api.NewGuestClient(client), taskapi.NewTTRPCTaskClient(client)
	now := func() uint64 {
		hello, err := service.Hello(t.Context(), &api.HelloRequest{ProtocolVersion: api.ProtocolVersion})
		if err != nil {
			t.Fatal(err)
		}
		return hello.GetNowUs()
	}
	before := now()
	if _, err := task.Create(t.Context(), createRequest(t, "c")); err != nil {
		t.Fatal(err)
	}
	if _, err := task.Start(t.Context(), &taskapi.StartRequest{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	if _, err := task.Create(t.Context(), createRequest(t, "../c")); err == nil {
		t.Error("a container was created with a path as its id")
	}
	after := now()
	line, err := service.Timeline(t.Context(), &api.TimelineRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range line.GetSpans() {
		names = append(names, s.GetContainerId()+" "+s.GetName())
		if s.GetStartUs()+slack < before || s.GetEndUs() < s.GetStartUs() || s.GetEndUs() > after+slack {
			t.Errorf("span %v, want it between %d and %d", s, before, after)
		}
	}
	slices.Sort(names) // with a coarse clock two may have the same start
	if diff := cmp.Diff([]string{"c create", "c start", "c storages"}, names); diff != "" || line.GetForgotten() != 0 {
		t.Errorf("%d forgotten, spans (-want +got):\n%s", line.GetForgotten(), diff)
	}
}
