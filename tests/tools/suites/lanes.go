package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// report is the result of one suite.
type report struct {
	suite   suite
	outcome outcome
	faults  []*fault
	took    time.Duration
	// notRun says why the suite did not run; "" when it did.
	notRun string
}

// passed reports whether the suite ran and nothing is wrong after all tries.
func (r *report) passed() bool {
	wrong := func(f *fault) bool { return f.second != pass }
	return r.notRun == "" && !slices.ContainsFunc(r.faults, wrong)
}

// schedule decides what runs when. Its methods may be called from several
// goroutines.
type schedule struct {
	mu      sync.Mutex
	changed *sync.Cond
	waiting []suite
	running []suite
	done    map[string]*report
}

func newSchedule(suites []suite) *schedule {
	s := &schedule{waiting: slices.Clone(suites), done: map[string]*report{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// next waits for a suite that may start and takes it. ok is false when none is
// left. On the way it reports suites whose needs failed as not run.
func (s *schedule) next() (_ suite, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.dropHopeless()
		if len(s.waiting) == 0 {
			return suite{}, false
		}
		if i := s.pick(); i >= 0 {
			taken := s.waiting[i]
			s.waiting = slices.Delete(s.waiting, i, i+1)
			s.running = append(s.running, taken)
			return taken, true
		}
		s.changed.Wait()
	}
}

// dropHopeless reports suites whose needs did not pass as not run, until there
// are none left: other suites may need those.
func (s *schedule) dropHopeless() {
	for {
		i := slices.IndexFunc(s.waiting, func(w suite) bool { return s.lacks(w) != "" })
		if i < 0 {
			return
		}
		hopeless := s.waiting[i]
		s.done[hopeless.name] = &report{suite: hopeless, notRun: s.lacks(hopeless)}
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
}

// lacks says which need of a suite did not pass, or "".
func (s *schedule) lacks(w suite) string {
	for _, need := range w.needs {
		if r := s.done[need]; r != nil && !r.passed() {
			return fmt.Sprintf("%s did not pass", need)
		}
	}
	return ""
}

// pick returns the index of the suite that starts now: the first that may start
// and is of the kind, with or without machines, that is not running; else the
// first that may start; else -1.
func (s *schedule) pick() int {
	vmRuns := slices.ContainsFunc(s.running, func(r suite) bool { return r.vm })
	first := -1
	for i, w := range s.waiting {
		if !s.mayStart(w) {
			continue
		}
		if w.vm != vmRuns {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	return first
}

func (s *schedule) mayStart(w suite) bool {
	for _, need := range w.needs {
		if s.done[need] == nil {
			return false
		}
	}
	return !slices.ContainsFunc(s.running, func(r suite) bool {
		return slices.ContainsFunc(w.uses, func(resource string) bool { return slices.Contains(r.uses, resource) })
	})
}

// finish stores a suite's report and wakes the lanes.
func (s *schedule) finish(r *report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = slices.DeleteFunc(s.running, func(other suite) bool { return other.name == r.suite.name })
	s.done[r.suite.name] = r
	s.changed.Broadcast()
}

// runAll runs the suites on that many lanes and returns their reports in the
// order of the suites.
func (r *runner) runAll(ctx context.Context, suites []suite, lanes int) []*report {
	s := newSchedule(suites)
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for {
				next, ok := s.next()
				if !ok {
					return
				}
				s.finish(r.runSuite(ctx, next))
			}
		})
	}
	wg.Wait()
	var reports []*report
	for _, one := range suites {
		reports = append(reports, s.done[one.name])
	}
	return reports
}

// runSuite runs one suite and immediately shows what is wrong with it.
func (r *runner) runSuite(ctx context.Context, s suite) *report {
	if err := context.Cause(ctx); err != nil {
		return &report{suite: s, notRun: err.Error()}
	}
	r.screen.begin(s)
	began := time.Now()
	o := r.run(ctx, s, s.args(), s.name)
	rep := &report{suite: s, outcome: o, took: time.Since(began), faults: faults(s, o)}
	if ctx.Err() != nil {
		for _, f := range rep.faults {
			f.final = true // there is no time left
		}
	}
	r.screen.end(rep)
	if s.atOnce && len(rep.faults) == 1 && !rep.faults[0].final {
		r.secondTry(ctx, rep.faults[0], s.name+"-second-try", []*report{rep})
	}
	return rep
}
