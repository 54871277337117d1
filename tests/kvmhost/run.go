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

// quiet is the silence after which a line says what is running.
const quiet = 20 * time.Second

// runSuite runs the suite's tests. With errDied the report is valid too: it has
// the results up to then.
func (m *machine) runSuite(ctx context.Context, s suite) (r *report, code int, err error) {
	r = newReport(os.Stdout)
	log, err := os.Create(m.logPath(s.name))
	if err != nil {
		return r, 0, fmt.Errorf("make log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	r.to = io.MultiWriter(log, os.Stdout)
	// The test program ends itself a moment earlier and says what hung.
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout+time.Minute,
		fmt.Errorf("%w: a test program that ends itself after %v has not", errDied, s.timeout))
	defer cancel()
	m.bed.say("suite %s: %s", s.name, strings.Join(s.tests, " "))
	go m.bed.heartbeat(ctx, s, r)
	began, used := time.Now(), m.cpuTime()
	code, err = m.run(ctx, wire.Command{
		Args: s.args(m.bed.program(s)),
		Dir:  filepath.Join(m.bed.layout.Root, s.pkg),
		Env:  environ(append(m.bed.suiteEnv(), s.env...)...),
	}, r, r)
	if err != nil {
		return r, code, fmt.Errorf("suite %s: %w%s", s.name, err, m.lastWords())
	}
	m.bed.say("suite %s: %d tests, %.0f s, %.0f s of the machine's CPU time", s.name, len(s.tests),
		time.Since(began).Seconds(), (m.cpuTime() - used).Seconds())
	return r, code, nil
}

// cpuTime returns the CPU time that the machine has used so far. Unlike
// wall-clock time it depends little on the build machine's other work.
func (m *machine) cpuTime() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.qemu.Pid()))
	if err != nil {
		return 0 // it has exited, which is reported elsewhere
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

// heartbeat prints what is running while nothing else is printed, until ctx
// ends.
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
