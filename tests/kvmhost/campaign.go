package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A machine with emulated SVM occasionally dies or hangs through no fault of
// the tests in it (docs/ci.md). A campaign then starts another machine for the
// tests without a result.
const (
	// maxMachines is the maximum number of machines that one run starts.
	maxMachines = 5
	// smokeMachines is the maximum for the smoke test.
	smokeMachines = 2
)

// host runs suites; machine implements it.
type host interface {
	// runSuite runs the suite's tests. With errDied the report is valid too: it
	// has the results up to then.
	runSuite(ctx context.Context, s suite) (r *report, code int, err error)
	stop(ctx context.Context) error
}

// campaign is one run of suites, on as many machines as it takes.
//
//	test: pending ──(passed, or failed twice on one machine)──> has a result
//	         ^  └──(the machine died)──┐
//	         └─────────────────────────┘  up to machines times
type campaign struct {
	boot     func(context.Context) (host, error)
	suites   []suite
	machines int
	say      func(format string, args ...any)

	died int
	// lastDeath is the first line of the error with which the last machine
	// died.
	lastDeath string
	// results are the tests' failures by suite and name; "" if the test passed.
	results map[[2]string]string
	// faults are the suites' problems other than failed tests.
	faults []string
	// outputs are the ends of the outputs of suites with a fault.
	outputs map[string]string
}

func newCampaign(boot func(context.Context) (host, error), suites []suite) *campaign {
	return &campaign{
		boot: boot, suites: suites, machines: maxMachines, say: func(string, ...any) {},
		results: map[[2]string]string{}, outputs: map[string]string{},
	}
}

// run starts machines until each test has a result or c.machines have been
// started. A machine's death is not an error.
func (c *campaign) run(ctx context.Context) error {
	for started := 0; started < c.machines && c.ran() < c.total(); started++ {
		err := c.runOnOne(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errDied):
			c.died++
			c.lastDeath, _, _ = strings.Cut(err.Error(), "\n")
			c.say("%v", err)
			c.say("%d of %d tests have run", c.ran(), c.total())
		case err != nil:
			return err
		}
	}
	c.say("%d of %d tests ran; the emulated host died %d times", c.ran(), c.total(), c.died)
	return nil
}

// runOnOne runs the tests without a result on a new machine.
func (c *campaign) runOnOne(ctx context.Context) (err error) {
	h, err := c.boot(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := h.stop(context.WithoutCancel(ctx)); stopped != nil && err == nil {
			err = fmt.Errorf("stop the machine: %w", stopped)
		}
	}()
	for _, s := range c.suites {
		if s.tests = c.pending(s); len(s.tests) == 0 {
			continue
		}
		if err := c.trySuite(ctx, h, s); err != nil {
			return err
		}
	}
	return nil
}

// pending returns the suite's tests without a result.
func (c *campaign) pending(s suite) []string {
	return slices.DeleteFunc(slices.Clone(s.tests), func(test string) bool {
		_, ended := c.results[[2]string{s.name, test}]
		return ended
	})
}

// trySuite runs one suite and notes the results. Failed tests get one second
// try, which is reported.
func (c *campaign) trySuite(ctx context.Context, h host, s suite) error {
	r, code, err := h.runSuite(ctx, s)
	if err != nil {
		c.notePassed(s, r)
		return err
	}
	faults, again := s.judge(r, code)
	if len(again) > 0 && len(again) == len(faults) {
		c.notePassed(s, r)
		c.say("suite %s: %s: a second try", s.name, strings.Join(faults, "; "))
		second := s.second(again)
		if r, code, err = h.runSuite(ctx, second); err != nil {
			c.notePassed(s, r)
			return err
		}
		s.tests = again
		faults, _ = s.judge(r, code)
	}
	c.note(s, r, faults)
	return nil
}

// notePassed notes the tests that passed before the machine died, or before a
// second try of the others.
func (c *campaign) notePassed(s suite, r *report) {
	r.mu.Lock() // output of a dead machine may still arrive
	defer r.mu.Unlock()
	for _, test := range s.tests {
		if r.results[test] == "PASS" {
			c.results[[2]string{s.name, test}] = ""
		}
	}
}

// note notes the results of all tests of a suite.
func (c *campaign) note(s suite, r *report, faults []string) {
	c.notePassed(s, r)
	for _, f := range faults {
		c.say("suite %s: FAIL: %s", s.name, f)
		c.outputs[s.name] = string(r.tail)
		test, _, _ := strings.Cut(f, " ")
		test = strings.TrimSuffix(test, ":")
		if slices.Contains(s.tests, test) {
			c.results[[2]string{s.name, test}] = f
		} else {
			c.faults = append(c.faults, s.name+": "+f)
		}
	}
}

func (c *campaign) total() (n int) {
	for _, s := range c.suites {
		n += len(s.tests)
	}
	return n
}

func (c *campaign) ran() int { return len(c.results) }

// verdict returns the exit code. Tests that did not run fail it, unless
// undecidedIsFine.
func (c *campaign) verdict(undecidedIsFine bool) int {
	for _, result := range c.results {
		if result != "" {
			return 1
		}
	}
	if len(c.faults) > 0 || c.ran() < c.total() && !undecidedIsFine {
		return 1
	}
	return 0
}

// event has the fields of test2json's that are used here.
type event struct {
	Action, Package string
	Test            string  `json:",omitempty"`
	Elapsed         float64 `json:",omitempty"`
	Output          string  `json:",omitempty"`
}

// printEvents prints what "go test -json" would. Tests without a result are
// reported as skipped, for the given reason.
func (c *campaign) printEvents(w io.Writer, reason string) {
	out := json.NewEncoder(w)
	emit := func(e event) { _ = out.Encode(e) } // strings to stdout
	for _, s := range c.suites {
		pkg, bad := "kvmhost/"+s.name, false
		for _, test := range s.tests {
			result, ended := c.results[[2]string{s.name, test}]
			e := event{Action: "pass", Package: pkg, Test: test}
			switch {
			case !ended:
				e.Action = "skip"
				emit(event{Action: "output", Package: pkg, Test: test, Output: "    " + reason + "\n"})
			case result != "":
				e.Action, bad = "fail", true
				emit(event{Action: "output", Package: pkg, Test: test, Output: result + "\n" + c.outputs[s.name]})
			}
			emit(e)
		}
		last := event{Action: "pass", Package: pkg}
		for _, f := range c.faults {
			if strings.HasPrefix(f, s.name+": ") {
				bad = true
				emit(event{Action: "output", Package: pkg, Output: f + "\n" + c.outputs[s.name]})
			}
		}
		if bad {
			last.Action = "fail"
		}
		emit(event{Action: "output", Package: pkg, Output: strings.ToUpper(last.Action) + "\n"})
		emit(last)
	}
}
