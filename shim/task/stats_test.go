package task_test

import (
	"testing"

	"github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/task"
)

// setMetrics sets the counters of every container.
func (s *shim) setMetrics(t *testing.T, m *v2.Metrics) {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s.host.Agent.SetMetrics(data)
}

// pids returns the number of processes in stats of either version.
func pids(t *testing.T, packed *anypb.Any) uint64 {
	t.Helper()
	m, err := typeurl.UnmarshalAny(packed)
	if err != nil {
		t.Fatal(err)
	}
	switch m := m.(type) {
	case *stats.Metrics:
		return m.GetPids().GetCurrent()
	case *v2.Metrics:
		return m.GetPids().GetCurrent()
	}
	t.Fatalf("stats are a %T", m)
	return 0
}

func TestStats(t *testing.T) {
	for _, namespace := range []string{"k8s.io", "isula"} {
		s := newShim(t, func(o *task.Options) { o.Namespace = namespace })
		s.run(t, sandboxID)
		s.setMetrics(t, &v2.Metrics{Pids: &v2.PidsStat{Current: 3}, CPU: &v2.CPUStat{UsageUsec: 5}, Memory: &v2.MemoryStat{Usage: 7}})
		resp, err := s.Stats(t.Context(), &taskapi.StatsRequest{ID: sandboxID})
		if err != nil {
			t.Fatal(err)
		}
		if got := pids(t, resp.Stats); got != 3 {
			t.Errorf("%s: %d processes, want 3", namespace, got)
		}
		if _, v1 := unpack(t, resp.Stats).(*stats.Metrics); namespace == "isula" && !v1 {
			t.Errorf("iSulad was given %s", resp.Stats.TypeUrl)
		}
	}
}

func unpack(t *testing.T, packed *anypb.Any) proto.Message {
	t.Helper()
	m, err := typeurl.UnmarshalAny(packed)
	if err != nil {
		t.Fatal(err)
	}
	return m.(proto.Message)
}

// Counters from the guest are validated while they are decoded.
func TestStatsOfHostileGuest(t *testing.T) {
	s := newShim(t, func(o *task.Options) { o.Namespace = "isula" })
	s.run(t, sandboxID)
	for _, data := range []string{"\xff\xff\xff", "\x0a\xff\xff\xff\xff\x0f"} {
		s.host.Agent.SetMetrics([]byte(data))
		if _, err := s.Stats(t.Context(), &taskapi.StatsRequest{ID: sandboxID}); err == nil {
			t.Errorf("%q was decoded", data)
		}
		if _, err := s.service.Metrics(t.Context()); err == nil {
			t.Errorf("%q was summed up", data)
		}
	}
	s.host.Agent.SetMetrics(nil) // unset counters are zero
	if _, err := s.Stats(t.Context(), &taskapi.StatsRequest{ID: sandboxID}); err != nil {
		t.Error(err)
	}
}

// The sandbox's counters are the sums of its running containers'.
func TestMetrics(t *testing.T) {
	s := newShim(t, nil)
	if _, err := s.service.Metrics(t.Context()); !errdefs.IsNotFound(err) {
		t.Errorf("before the first container: %v", err)
	}
	s.run(t, sandboxID)
	s.run(t, "c1")
	s.create(t, "c2") // it does not run, so it does not count
	s.setMetrics(t, &v2.Metrics{Pids: &v2.PidsStat{Current: 3}})
	sum, err := s.service.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := pids(t, sum); got != 6 {
		t.Errorf("%d processes, want 6", got)
	}
	s.host.Agent.Fail("Stats", errInjected)
	if _, err := s.service.Metrics(t.Context()); err == nil {
		t.Error("no error")
	}
}
