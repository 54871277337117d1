package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// warmUp is how many pods run before the first figures are read: an engine
// keeps some resources from its first pods on.
const warmUp = 3

// sayEvery is the time between two lines of progress.
const sayEvery = time.Minute

// Pods that run one after the other leave nothing behind, and the last are as
// fast as the first.
func TestOneAfterAnother(t *testing.T) {
	s := newScene(t, plan.pods)
	took := make([]time.Duration, 0, plan.pods)
	for n := range plan.pods {
		began := time.Now()
		if err := live(t.Context(), n); err != nil {
			t.Errorf("pod %d: %v", n+1, err)
		}
		took = append(took, time.Since(began))
		s.progress(n + 1)
	}
	few := max(len(took)/10, 1)
	t.Logf("%d pods, one after the other, in %v; median of the first %d: %v, of the last: %v",
		len(took), s.age(), few, median(took[:few]), median(took[len(took)-few:]))
}

// Many simultaneous pods, again and again, leave nothing behind.
func TestManyAtOnce(t *testing.T) {
	s := newScene(t, 0)
	var pods atomic.Int64
	var group sync.WaitGroup
	for range plan.atOnce {
		group.Go(func() {
			for s.age() < plan.time && t.Context().Err() == nil {
				n := int(pods.Add(1))
				if err := live(t.Context(), n); err != nil {
					t.Errorf("pod %d: %v", n, err)
				}
				s.progress(n)
			}
		})
	}
	group.Wait()
	s.pods = int(pods.Load())
	t.Logf("%d pods, %d at once, in %v", s.pods, plan.atOnce, s.age())
}

// scene is one test: the resident pod that lives through all of it, and the
// figures from its beginning.
type scene struct {
	t        *testing.T
	began    time.Time
	pods     int
	resident *harness.Container
	procs    []harness.Proc
	before   holders

	mu   sync.Mutex // guards said
	said time.Time
}

// newScene begins a test of the given number of pods. At the test's end it
// compares the figures with those from the beginning.
func newScene(t *testing.T, pods int) *scene {
	t.Helper()
	s := &scene{t: t, pods: pods}
	ctx := engine.Context(t.Context())
	for n := range warmUp {
		if err := live(ctx, n); err != nil {
			t.Fatalf("warm up: %v", err)
		}
	}
	s.newResident(ctx)
	var err error
	if s.before, err = look(s.procs); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var used sync.WaitGroup
	used.Go(func() { s.use(ctx, stop) })
	t.Cleanup(func() {
		close(stop)
		used.Wait()
		s.compare()
	})
	s.began, s.said = time.Now(), time.Now()
	return s
}

// newResident starts the pod that lives through the test and is removed at its
// end.
func (s *scene) newResident(ctx context.Context) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, lifeTimeout)
	defer cancel()
	pod, err := engine.NewPod(ctx, "resident")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(engine.Context(context.Background()), lifeTimeout)
		defer cancel()
		if err := errors.Join(pod.Remove(ctx), engine.Settled(ctx)); err != nil {
			s.t.Error(err)
		}
	})
	if s.resident, err = pod.Add(ctx, harness.ContainerConfig{Name: "resident", Args: []string{"sleep", "1000000"}}); err != nil {
		s.t.Fatal(err)
	}
	if err := s.resident.Start(ctx); err != nil {
		s.t.Fatal(err)
	}
	procs, err := engine.Processes()
	if err != nil {
		s.t.Fatal(err)
	}
	s.procs = slices.DeleteFunc(procs, func(p harness.Proc) bool { return p.Kind() != harness.KindShim && p.Kind() != harness.KindVMM })
	for range warmUp {
		if err := echo(ctx, s.resident); err != nil {
			s.t.Fatal(err)
		}
	}
}

// use runs a process in the resident pod now and then, until stop.
func (s *scene) use(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Second):
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lifeTimeout)
		err := echo(limited, s.resident)
		cancel()
		if err != nil {
			s.t.Errorf("the pod that lives through the test: %v", err)
		}
	}
}

// compare prints the figures before and after, and fails the test if they grew
// with the pods.
func (s *scene) compare() {
	s.t.Helper()
	after, err := look(s.procs)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.t.Logf("%d pods:\n%s", s.pods, table(s.before, after))
	limits := []struct {
		who, what string
		more      int // growth that does not depend on the pods
	}{
		{containerd, "files", 8 + s.pods/20},
		{harness.KindShim, "files", 8},
		{harness.KindShim, "threads", 64}, // the share's, up to their limit
		{harness.KindShim, "memory KiB", 24 << 10},
		{harness.KindVMM, "files", 8},
		{harness.KindVMM, "threads", 4},
	}
	if os.Getenv(harness.EnvStrict) != "" {
		for _, what := range []string{"mounts", "cgroups", "netns"} {
			limits = append(limits, struct {
				who, what string
				more      int
			}{host, what, 0})
		}
	}
	for _, l := range limits {
		if was, is := s.before[l.who][l.what], after[l.who][l.what]; is > was+l.more {
			s.t.Errorf("%s: %s: %d, was %d, may be %d more", l.who, l.what, is, was, l.more)
		}
	}
}

func (s *scene) age() time.Duration { return time.Since(s.began).Round(time.Second) }

// progress prints now and then how far the test is.
func (s *scene) progress(pods int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.said) < sayEvery {
		return
	}
	s.said = time.Now()
	fmt.Printf("... %d pods in %v\n", pods, s.age())
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2].Round(time.Millisecond)
}
