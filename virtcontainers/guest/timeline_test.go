package guest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/spans"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

func TestTimelineOfALiar(t *testing.T) {
	long := strings.Repeat("x", 1000)
	list, forgotten := believe(&api.TimelineResponse{
		Forgotten: 7,
		Spans: []*api.Span{
			{Name: "kernel", StartUs: 5, EndUs: 9},
			{Name: "backwards", StartUs: 9, EndUs: 5},
			{Name: "\x1b[2J\xffend", ContainerId: "c1"},
			{Name: long, StartUs: math.MaxUint64, EndUs: math.MaxUint64},
			{Name: "", ContainerId: "c1"},
			{Name: "escape", ContainerId: "../c1"},
			nil,
		},
	})
	want := []spans.Span{
		{Name: "kernel", Start: 5 * time.Microsecond, End: 9 * time.Microsecond},
		{Name: "backwards", Start: 9 * time.Microsecond, End: 9 * time.Microsecond},
		{Container: "c1", Name: "?[2J?end"},
		{Name: long[:api.MaxSpanName], Start: maxTime, End: maxTime},
	}
	if diff := cmp.Diff(want, list); diff != "" || forgotten != 7+3 {
		t.Errorf("%d forgotten, want 10; spans (-want +got):\n%s", forgotten, diff)
	}
	flood := &api.TimelineResponse{Forgotten: math.MaxUint64}
	for range 3 * api.MaxSpans {
		flood.Spans = append(flood.Spans, &api.Span{Name: "flood"})
	}
	if list, forgotten = believe(flood); len(list) != api.MaxSpans || forgotten != math.MaxInt32+2*api.MaxSpans {
		t.Errorf("%d spans and %d forgotten of a flood", len(list), forgotten)
	}
}

// FuzzTimeline gives the host arbitrary answers from a guest.
func FuzzTimeline(f *testing.F) {
	seed, err := proto.Marshal(&api.TimelineResponse{Spans: []*api.Span{{ContainerId: "c", Name: "create", StartUs: 1, EndUs: 2}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var resp api.TimelineResponse
		if proto.Unmarshal(data, &resp) != nil {
			return
		}
		list, forgotten := believe(&resp)
		if len(list) > api.MaxSpans || forgotten < 0 {
			t.Errorf("%d spans, %d forgotten", len(list), forgotten)
		}
		for _, s := range list {
			if s.Name == "" || len(s.Name) > api.MaxSpanName || s.Start < 0 || s.End < s.Start || s.End > maxTime {
				t.Errorf("span %+v", s)
			}
			if s.Container != "" && bundle.CheckID(s.Container) != nil {
				t.Errorf("container %q", s.Container)
			}
		}
	})
}
