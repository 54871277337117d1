package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/ginkgo"
	"github.com/katabox/katabox/tests/harness"
)

// EnvKnown, when it is not empty, makes TestCritest also run the cases of the
// list of known differences, and fail on those that pass.
const EnvKnown = "KATABOX_TEST_CRI_KNOWN"

// EnvWhole, when it is not empty, makes TestCritest run all cases with runc too, and not
// only those that do not pass with Katabox.
const EnvWhole = "KATABOX_TEST_CRI_WHOLE"

// critestTimeout bounds one run of the suite. Virtual machines without KVM take
// several minutes; a case that hangs takes one more.
const critestTimeout = 30 * time.Minute

// What passes with runc passes with Katabox.
func TestCritest(t *testing.T) {
	within(t, 2*critestTimeout+time.Minute, func(ctx context.Context, t *testing.T, e *env.Env) {
		if !bed.runtime.VM {
			t.Logf("runc alone:\n%s", critest(ctx, t, e, harness.Runc.Name, selection{}).Counts())
			return
		}
		some, note := drawn(ctx, t)
		if os.Getenv(EnvKnown) == "" {
			some.skip = ginkgo.SkipPattern(known)
		}
		kata := critest(ctx, t, e, harness.Kata.Name, some)
		runc := reference(ctx, t, e, kata, some)
		table := note + ginkgo.SideBySide(runc, kata, known)
		fmt.Print(table) // without -v too: this is what the test is for
		writeLog(t, "critest.txt", table)
		for _, complaint := range ginkgo.Complaints(runc, kata, known, some.skip == "") {
			t.Error(complaint)
		}
	})
}

// reference returns the results with runc: those of the cases that were selected and did
// not pass with Katabox, or of all. Only the former can show a difference.
func reference(ctx context.Context, t *testing.T, e *env.Env, kata ginkgo.Results, some selection) ginkgo.Results {
	t.Helper()
	if os.Getenv(EnvWhole) != "" {
		return critest(ctx, t, e, harness.Runc.Name, selection{})
	}
	runc := critest(ctx, t, e, harness.Runc.Name, selection{focus: ginkgo.Pattern(some.notPassed(kata))})
	maps.DeleteFunc(runc.Cases, func(_ string, outcome ginkgo.Outcome) bool { return outcome.State == ginkgo.Left })
	return runc
}

// selection has patterns of the cases to run and not to run; an empty one selects nothing.
type selection struct{ focus, skip string }

// notPassed returns the names of the cases in focus that did not pass.
func (s selection) notPassed(r ginkgo.Results) []string {
	focus := regexp.MustCompile(s.focus)
	var names []string
	for name, outcome := range r.Cases {
		if outcome.State != ginkgo.Passed && focus.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// critest runs cases of the suite with a runtime handler and returns each case's result.
// Its output and report stay in build/logs.
func critest(ctx context.Context, t *testing.T, e *env.Env, handler string, some selection) ginkgo.Results {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, critestTimeout)
	defer cancel()
	base := filepath.Join(bed.layout.Logs(), "critest-"+handler)
	report := base + ".json"
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, env.CritestPath(bed.layout), critestArgs(e, handler, some, report)...)
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
	p := ginkgo.StartProgress("critest with "+handler, 20*time.Second, log)
	cmd.Stdout, cmd.Stderr = p, p
	err = cmd.Run() // fails when a case fails
	p.Stop()
	r, readErr := ginkgo.Read(report)
	if readErr != nil {
		t.Fatalf("%v (critest: %v; see %s)", readErr, err, log.Name())
	}
	r.Name, r.Took = handler, time.Since(start)
	if err := e.Settled(ctx); err != nil {
		t.Errorf("after the suite with %s: %v", handler, err)
	}
	return r
}

func critestArgs(e *env.Env, handler string, some selection, report string) []string {
	args := []string{
		// Cases that cannot run in parallel are marked (ginkgo's Serial); with
		// more than four in parallel their timeouts are too short.
		"-parallel", strconv.Itoa(min(runtime.NumCPU(), 4)),
		"-runtime-endpoint", e.Endpoint(), "-runtime-handler", handler,
		"-ginkgo.no-color", "-ginkgo.json-report", report, "-ginkgo.timeout", (critestTimeout - time.Minute).String(),
	}
	if some.focus != "" {
		args = append(args, "-ginkgo.focus", some.focus)
	}
	if some.skip != "" {
		args = append(args, "-ginkgo.skip", some.skip)
	}
	return args
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
