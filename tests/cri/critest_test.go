package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/harness"
)

// EnvKnown, when it is not empty, makes TestCritest also run the cases of the
// list of known differences, and fail on those that pass.
const EnvKnown = "KATABOX_TEST_CRI_KNOWN"

// critestTimeout bounds one run of the suite. Virtual machines without KVM take
// several minutes; a case that hangs takes one more.
const critestTimeout = 30 * time.Minute

// What passes with runc passes with Katabox.
func TestCritest(t *testing.T) {
	within(t, 2*critestTimeout+time.Minute, func(ctx context.Context, t *testing.T, e *env.Env) {
		runc := critest(ctx, t, e, harness.Runc.Name, "")
		if !bed.runtime.VM {
			t.Logf("runc alone:\n%s", runc.counts())
			return
		}
		skip := ""
		if os.Getenv(EnvKnown) == "" {
			skip = skipPattern(known)
		}
		kata := critest(ctx, t, e, harness.Kata.Name, skip)
		table := sideBySide(runc, kata, known)
		fmt.Print(table) // without -v too: this is what the test is for
		writeLog(t, "critest.txt", table)
		for _, complaint := range complaints(runc, kata, known, skip == "") {
			t.Error(complaint)
		}
	})
}

// critest runs the suite with a runtime handler and returns each case's result.
// Its output and report stay in build/logs.
func critest(ctx context.Context, t *testing.T, e *env.Env, handler, skip string) results {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, critestTimeout)
	defer cancel()
	base := filepath.Join(bed.layout.Logs(), "critest-"+handler)
	report := base + ".json"
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, env.CritestPath(bed.layout), critestArgs(e, handler, skip, report)...)
	cmd.Env = append(e.Daemon.Env(), "TMPDIR="+workDir(t, e, handler),
		// It starts "ginkgo", and the cases start "ipcmk" and "sleep".
		"PATH="+env.ToolsDir(bed.layout)+":"+os.Getenv("PATH"))
	log, err := os.Create(base + ".log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	segments := sharedMemory(t)
	defer removeSharedMemory(t, segments)

	start := time.Now()
	p := startProgress(handler, log)
	cmd.Stdout, cmd.Stderr = p, p
	err = cmd.Run() // fails when a case fails
	p.stop()
	r, readErr := readReport(report)
	if readErr != nil {
		t.Fatalf("%v (critest: %v; see %s)", readErr, err, log.Name())
	}
	r.name, r.took = handler, time.Since(start)
	if err := e.Settled(ctx); err != nil {
		t.Errorf("after the suite with %s: %v", handler, err)
	}
	return r
}

func critestArgs(e *env.Env, handler, skip, report string) []string {
	args := []string{
		// Cases that cannot run in parallel are marked (ginkgo's Serial); with
		// more than four in parallel their timeouts are too short.
		"-parallel", strconv.Itoa(min(runtime.NumCPU(), 4)),
		"-runtime-endpoint", e.Endpoint(), "-runtime-handler", handler,
		"-ginkgo.no-color", "-ginkgo.json-report", report, "-ginkgo.timeout", (critestTimeout - time.Minute).String(),
	}
	if skip != "" {
		args = append(args, "-ginkgo.skip", skip)
	}
	return args
}

// skipPattern matches the names of the cases in the list and nothing else.
func skipPattern(known []exception) string {
	var names []string
	for _, k := range known {
		names = append(names, regexp.QuoteMeta(k.name))
	}
	if len(names) == 0 {
		return ""
	}
	return "(" + strings.Join(names, "|") + ")$"
}

// workDir is where the suite makes its directories. It is below the daemon's,
// and so is removed with it; a case that ends early leaves some directories.
func workDir(t *testing.T, e *env.Env, handler string) string {
	t.Helper()
	dir := filepath.Join(e.Daemon.Dir, "critest-"+handler)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeLog(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(bed.layout.Logs(), name), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// progress passes on the suite's output and prints its progress now and then:
// the reporter prints a dot for each case that ran (ginkgo, reporters).
type progress struct {
	name  string
	start time.Time
	done  chan struct{}
	ended chan struct{}

	// mu guards the rest.
	mu            sync.Mutex
	out           *os.File
	cases, failed int
}

func startProgress(name string, out *os.File) *progress {
	p := &progress{name: name, start: time.Now(), done: make(chan struct{}), ended: make(chan struct{}), out: out}
	go func() {
		defer close(p.ended)
		for {
			select {
			case <-p.done:
				return
			case <-time.After(20 * time.Second):
				p.say("")
			}
		}
	}()
	return p
}

func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cases += strings.Count(string(b), "•")
	p.failed += strings.Count(string(b), "• [FAILED]")
	return p.out.Write(b)
}

func (p *progress) say(end string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Printf("critest with %s: %d cases, %d failed, %s%s\n", p.name, p.cases, p.failed, time.Since(p.start).Round(time.Second), end)
}

func (p *progress) stop() {
	close(p.done)
	<-p.ended
	p.say(", done")
}
