package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// report prints progress, as lines or as the events of "go test -json". Its
// methods may be called from any goroutine.
type report struct {
	json  bool
	total int

	mu    sync.Mutex // guards what follows
	out   io.Writer
	count int
}

func newReport(out io.Writer, asJSON bool, packages []listed) *report {
	r := &report{out: out, json: asJSON}
	for _, p := range packages {
		r.total += len(p.targets)
	}
	return r
}

// event has the fields of test2json's events that are used here.
type event struct {
	Action  string
	Package string
	Test    string  `json:",omitempty"`
	Elapsed float64 `json:",omitempty"`
	Output  string  `json:",omitempty"`
}

func (r *report) emit(e event) {
	if !r.json {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(r.out).Encode(e) // strings and a finite number, to standard output
}

func (r *report) begin(p listed, name string) {
	r.emit(event{Action: "run", Package: p.ImportPath, Test: name})
}

// end reports a target's end; err is what was found.
func (r *report) end(p listed, name string, took time.Duration, did work, err error) {
	action, verdict := "pass", "ok"
	if err != nil {
		action, verdict = "fail", "FAILED\n"+err.Error()
		r.emit(event{Action: "output", Package: p.ImportPath, Test: name, Output: err.Error() + "\n"})
	}
	r.emit(event{Action: action, Package: p.ImportPath, Test: name, Elapsed: took.Seconds()})
	if r.json {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	fmt.Fprintf(r.out, "fuzz [%d/%d] %s %s: %d executions in %.1f s, %.1f s of CPU time: %s\n",
		r.count, r.total, p.ImportPath, name, did.executions, took.Seconds(), did.cpu.Seconds(), verdict)
}

// broken reports a package whose targets cannot run.
func (r *report) broken(p listed, err error) {
	r.emit(event{Action: "output", Package: p.ImportPath, Output: err.Error() + "\n"})
	r.emit(event{Action: "fail", Package: p.ImportPath})
	if !r.json {
		r.mu.Lock()
		defer r.mu.Unlock()
		fmt.Fprintf(r.out, "fuzz %s: %v\n", p.ImportPath, err)
	}
}

// done reports that all targets of a package have run, in the testing
// package's words.
func (r *report) done(p listed, took time.Duration, ok bool) {
	action, verdict := "pass", "PASS\n"
	if !ok {
		action, verdict = "fail", "FAIL\n"
	}
	r.emit(event{Action: "output", Package: p.ImportPath, Output: verdict})
	r.emit(event{Action: action, Package: p.ImportPath, Elapsed: took.Seconds()})
}
