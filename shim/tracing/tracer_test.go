package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// fixedSource is a sandbox whose guest does not answer before the call is
// cancelled, unless answers is set.
type fixedSource struct {
	timeline *timeline.Timeline
	answers  bool
}

func (s fixedSource) HostTimeline() *timeline.Timeline { return s.timeline }

func (s fixedSource) Timeline(ctx context.Context) *timeline.Timeline {
	if !s.answers {
		<-ctx.Done()
	}
	return s.timeline
}

// sent collects what an Exporter was given.
type sent struct {
	batches []*Batch
	last    []bool
	// hang makes the exporter wait for the end of its context.
	hang bool
}

func (s *sent) export(ctx context.Context, b *Batch, last bool) error {
	s.batches, s.last = append(s.batches, b), append(s.last, last)
	if s.hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

func (s *sent) names() (list []string) {
	for _, b := range s.batches {
		for _, span := range b.Spans {
			list = append(list, span.Name)
		}
	}
	return list
}

func tracingConfig(guest bool) *config.Config {
	return &config.Config{
		Agent: config.Agent{Tracing: guest}, Runtime: config.Runtime{Tracing: config.Tracing{Enabled: true, Endpoint: "http://e/", User: "u", Password: "p"}},
	}
}

func TestTracerSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sent
		tr := New(t.Context(), "pod", s.export)
		tr.add(called("CreateSandbox", "pod", "", "", 1, 2)) // before the configuration is known
		tr.Configure(tracingConfig(false), map[string]string{"a": "b"})
		detach := tr.Attach(fixedSource{timeline: start})
		tr.add(called("Create", "pod", "", "", 15, 85))
		time.Sleep(pause / 2)
		tr.add(called("Start", "pod", "", "", 100, 110))
		time.Sleep(pause)
		synctest.Wait()
		if len(s.batches) != 1 || len(s.batches[0].Spans) != 11 {
			t.Fatalf("sent %q in %d batches", s.names(), len(s.batches))
		}
		b := s.batches[0]
		if b.Version != Version || b.Endpoint != "http://e/" || b.User != "u" || b.Password != "p" || b.Resource["a"] != "b" {
			t.Errorf("batch %+v", b)
		}
		detach()
		tr.add(called("Delete", "pod", "", "", 300, 301))
		tr.Close()
		if got := s.names()[11:]; !slices.Equal(got, []string{"Task/Delete"}) || !slices.Equal(s.last, []bool{false, true}) {
			t.Errorf("at the end: %q, last %v", got, s.last)
		}
	})
}

// More than a batch may have is sent in several, in order.
func TestManySpansAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sent
		read := func(ctx context.Context, b *Batch, last bool) error {
			data, err := json.Marshal(b)
			if err != nil {
				return err
			}
			got, err := ReadBatch(bytes.NewReader(data))
			if err != nil {
				t.Errorf("%d spans in %d bytes: %v", len(b.Spans), len(data), err)
				return err
			}
			return s.export(ctx, got, last)
		}
		tr := New(t.Context(), "pod", read)
		tr.Configure(tracingConfig(false), map[string]string{"a": strings.Repeat("b", 1000)})
		for range 20 {
			c := called("Kill", "pod", "", "", 1, 2)
			c.err = errors.New(strings.Repeat("\x01", 200_000)) // six times as much in JSON
			tr.add(c)
		}
		time.Sleep(2 * pause)
		synctest.Wait()
		tr.Close()
		if n := len(s.names()); n != 20 || len(s.batches) < 3 {
			t.Errorf("%d spans were sent in %d batches", n, len(s.batches))
		}
		for _, b := range s.batches {
			if b.Resource["a"] == "" || b.Endpoint != "http://e/" || b.Version != Version {
				t.Errorf("batch %+v", b)
			}
		}
	})
}

// A pod that has ended before the first batch is sent whole by the last one.
func TestShortPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sent
		tr := New(t.Context(), "pod", s.export)
		tr.Configure(tracingConfig(true), nil)
		detach := tr.Attach(fixedSource{timeline: start})
		tr.add(called("Create", "pod", "", "", 15, 85))
		tr.add(called("Start", "pod", "", "", 100, 110))
		before := time.Now()
		detach() // its guest does not answer
		if took := time.Since(before); took > lastTimeout {
			t.Errorf("the guest delays the end by %v", took)
		}
		tr.Close()
		if len(s.batches) != 1 || len(s.names()) != 10 {
			t.Errorf("sent %q", s.names())
		}
	})
}

// A receiver that hangs delays nothing. A sandbox's end ends the process that
// sends to it, and another one is left to send the same spans.
func TestReceiverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sent{hang: true}
		tr := New(t.Context(), "pod", s.export)
		tr.Configure(tracingConfig(false), nil)
		detach := tr.Attach(fixedSource{timeline: start})
		tr.add(called("Create", "pod", "", "", 15, 85))
		time.Sleep(2 * pause)
		before := time.Now()
		detach()
		if took := time.Since(before); len(s.batches) != 1 || took != 0 {
			t.Errorf("%d batches, the end took %v", len(s.batches), took)
		}
		s.hang = false
		tr.Close()
		if len(s.batches) != 2 || len(s.batches[1].Spans) != len(s.batches[0].Spans) {
			t.Errorf("what was interrupted is not sent again: %q", s.names())
		}
	})
}

func TestDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sent
		tr := New(t.Context(), "pod", s.export)
		tr.add(called("Create", "pod", "", "", 15, 85))
		tr.Configure(&config.Config{}, nil)
		tr.add(called("Start", "pod", "", "", 100, 110))
		tr.Attach(fixedSource{timeline: start})()
		tr.Close()
		if len(s.batches)+len(tr.calls) != 0 {
			t.Errorf("%d batches, %d calls are kept", len(s.batches), len(tr.calls))
		}
	})
}

func TestTracerIsBounded(t *testing.T) {
	tr := New(t.Context(), "pod", (&sent{}).export)
	for range 2 * maxCalls {
		tr.add(called("Exec", "pod", "e", "", 1, 2))
	}
	if len(tr.calls) != maxCalls {
		t.Errorf("%d calls are kept, want %d", len(tr.calls), maxCalls)
	}
}

func TestIntercept(t *testing.T) {
	tr := New(t.Context(), "pod", (&sent{}).export)
	header := "00-" + someTrace + "-" + someSpan + "-01"
	ctx := ttrpc.WithMetadata(t.Context(), ttrpc.MD{"traceparent": {header}})
	failure := errors.New("failure")
	for _, one := range []struct {
		service, method string
		request         any
		err             error
	}{
		{"containerd.task.v3.Task", "Exec", &task.ExecProcessRequest{ID: "c", ExecID: "e"}, failure},
		{"containerd.task.v3.Task", "Stats", &task.StatsRequest{ID: "c"}, nil},
		{"containerd.task.v3.Task", "Wait", &task.WaitRequest{ID: "c"}, nil},
		{"containerd.runtime.sandbox.v1.Sandbox", "StartSandbox", &sandbox.StartSandboxRequest{SandboxID: "s"}, nil},
	} {
		answer, err := tr.Intercept(ctx, func(request any) error {
			if request != one.request {
				t.Errorf("%s: request %v", one.method, request)
			}
			return nil
		}, &ttrpc.UnaryServerInfo{FullMethod: "/" + one.service + "/" + one.method}, func(_ context.Context, decode func(any) error) (any, error) {
			return one.method, errors.Join(decode(one.request), one.err)
		})
		if answer != one.method || (one.err == nil) != (err == nil) {
			t.Errorf("%s: %v, %v", one.method, answer, err)
		}
	}
	var got []string
	for _, c := range tr.calls {
		text := c.name() + " " + c.container + " " + c.exec
		if c.err != nil {
			text += " " + c.err.Error()
		}
		if c.parent != header || c.end.Before(c.start) {
			t.Errorf("call %+v", c)
		}
		got = append(got, text)
	}
	if want := "Task/Exec c e failure, Sandbox/StartSandbox s "; strings.Join(got, ", ") != want {
		t.Errorf("recorded %q, want %q", strings.Join(got, ", "), want)
	}
}
