package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// quiet is after how much silence a line says what runs.
const quiet = 20 * time.Second

// runSuites runs the suites one after the other, all of them also when one
// fails, and returns the exit code.
func runSuites(ctx context.Context, m *machine, suites []suite) (int, error) {
	var failed []string
	for _, s := range suites {
		began, used := time.Now(), m.cpuTime()
		faults, err := m.trySuite(ctx, s)
		if err != nil {
			return 1, fmt.Errorf("suite %s: %w%s", s.name, err, m.lastWords())
		}
		verdict := "ok"
		if len(faults) > 0 {
			verdict = "FAIL: " + strings.Join(faults, "; ")
			failed = append(failed, s.name)
		}
		m.bed.say("suite %s: %d tests, %.0f s, %.0f s of the machine's CPU time: %s", s.name, len(s.tests),
			time.Since(began).Seconds(), (m.cpuTime() - used).Seconds(), verdict)
	}
	m.bed.say("logs are in %s", m.bed.results())
	if len(failed) > 0 {
		return 1, fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	m.bed.say("all passed, with KVM and vhost-vsock")
	return 0, nil
}

// trySuite runs one suite and returns what is wrong. Tests that fail get a
// second try, and it says so: a machine in a machine whose SVM is emulated is
// lost now and then, one in a hundred, through no fault of what is tested here
// (docs/ci.md).
func (m *machine) trySuite(ctx context.Context, s suite) ([]string, error) {
	faults, again, err := m.runSuite(ctx, s)
	if err != nil || len(again) == 0 || len(again) < len(faults) {
		return faults, err
	}
	m.bed.say("suite %s: %s: a second try", s.name, strings.Join(faults, "; "))
	faults, _, err = m.runSuite(ctx, s.second(again))
	return faults, err
}

// runSuite runs one suite and returns what is wrong, and which of its tests are
// worth a second try.
func (m *machine) runSuite(ctx context.Context, s suite) (faults, again []string, err error) {
	log, err := os.Create(filepath.Join(m.bed.results(), s.name+".log"))
	if err != nil {
		return nil, nil, fmt.Errorf("make log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	// The test program ends itself a moment earlier and says what hung.
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout+30*time.Second, fmt.Errorf("it hangs after %v", s.timeout))
	defer cancel()
	m.bed.say("suite %s: %s", s.name, strings.Join(s.tests, " "))
	r := newReport(io.MultiWriter(log, os.Stdout))
	go m.bed.heartbeat(ctx, s, r)
	code, err := m.run(ctx, wire.Command{
		Args: s.args(m.bed.program(s)),
		Dir:  filepath.Join(m.bed.layout.Root, s.pkg),
		Env:  environ(append(m.bed.suiteEnv(), s.env...)...),
	}, r, r)
	if err != nil {
		return nil, nil, err
	}
	faults, again = s.judge(r, code)
	return faults, again, nil
}

// cpuTime is what the machine has used so far: unlike the time on the clock it
// does not depend much on what else the build machine does.
func (m *machine) cpuTime() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.qemu.Pid()))
	if err != nil {
		return 0 // it has ended, which is told elsewhere
	}
	// pid (comm) state and ten more, utime stime, in 1/100 s (proc(5)).
	_, text, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(text)
	var ticks int64
	for _, f := range fields[min(11, len(fields)):min(13, len(fields))] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100)
}

// heartbeat says what runs while nothing else is printed, until ctx ends.
func (b *bed) heartbeat(ctx context.Context, s suite, r *report) {
	ticks := time.NewTicker(quiet)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if silent, current := r.silence(); silent >= quiet {
			b.say("suite %s: %s is still running", s.name, current)
		}
	}
}
