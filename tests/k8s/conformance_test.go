package k8s

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/ginkgo"
)

// EnvConformanceKnown, when it is not empty, makes TestNodeConformance also run the
// cases of the list of known differences, and fail on those that pass.
const EnvConformanceKnown = "KATABOX_TEST_CONFORMANCE_KNOWN"

// EnvConformanceRunc names the report of an earlier run with runc
// (conformance-runc.json), which is compared in place of another one.
const EnvConformanceRunc = "KATABOX_TEST_CONFORMANCE_RUNC"

// nodeConformance matches the cases that every node must pass.
const nodeConformance = `\[NodeConformance\]`

// slow matches cases that wait for half an hour with any runtime: for the kubelet's
// pauses between the starts of a container. They are run with neither.
const slow = `\[Slow\]`

const (
	// conformanceTimeout bounds one run of the suite.
	conformanceTimeout = 3 * time.Hour
	// runcProcs and kataProcs are how many cases run at once; one may have several
	// pods. Most of them wait for most of their time. Without KVM and beside other
	// work, five at once made liveness probes fail: the program that they ask does
	// not always answer within the fifteen seconds that it has.
	runcProcs, kataProcs = 6, 3
	// secondTries is how many cases may be tried again, each alone: more failures
	// are not coincidental.
	secondTries = 20
)

// What passes with runc passes with Katabox: Kubernetes' own suite, with one and
// then the other as the runtime of pods that name no RuntimeClass.
func TestNodeConformance(t *testing.T) {
	focus := os.Getenv(EnvConformance)
	switch focus {
	case "":
		t.Skipf("takes hours: run \"make conformance\", or set %s", EnvConformance)
	case "all":
		focus = nodeConformance
	}
	reference := withRunc(t, focus)
	skip := ""
	if os.Getenv(EnvConformanceKnown) == "" {
		skip = ginkgo.SkipPattern(known)
	}
	got := conformance(t, kata, "", focus, skip, kataProcs)
	if again := ginkgo.Worse(reference, got, known); len(again) > 0 && len(again) <= secondTries {
		t.Logf("run once more, alone, since the first time:\n%s", ginkgo.SideBySide(reference, got, known))
		for name, outcome := range conformance(t, kata, "-again", ginkgo.Pattern(again), "", 1).Cases {
			if outcome.State != ginkgo.Left {
				got.Cases[name] = outcome
			}
		}
	}
	table := ginkgo.SideBySide(reference, got, known)
	fmt.Print(table) // without -v too: this is what the test is for
	if err := os.WriteFile(filepath.Join(bed.layout.Logs(), "conformance.txt"), []byte(table), 0o600); err != nil {
		t.Error(err)
	}
	for _, complaint := range ginkgo.Complaints(reference, got, known, skip == "") {
		t.Error(complaint)
	}
}

// withRunc returns the results with runc of the cases that match focus.
func withRunc(t *testing.T, focus string) ginkgo.Results {
	t.Helper()
	report := os.Getenv(EnvConformanceRunc)
	if report == "" {
		return conformance(t, runc, "", focus, "", runcProcs)
	}
	r, err := ginkgo.Read(report)
	if err != nil {
		t.Fatalf("%s: %v", EnvConformanceRunc, err)
	}
	pattern, err := regexp.Compile(focus)
	if err != nil {
		t.Fatalf("%s: %v", EnvConformance, err)
	}
	passed := 0
	for name, outcome := range r.Cases {
		if !pattern.MatchString(name) {
			r.Cases[name] = ginkgo.Outcome{State: ginkgo.Left}
		} else if outcome.State == ginkgo.Passed {
			passed++
		}
	}
	if passed == 0 {
		t.Fatalf("%s: no case in %s that matches %s passed", EnvConformanceRunc, report, focus)
	}
	r.Name = runc
	return r
}

// conformance runs the suite's cases that match focus and not skip, and returns
// their results. Its output and report stay in build/logs.
func conformance(t *testing.T, runtime, suffix, focus, skip string, procs int) ginkgo.Results {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), conformanceTimeout+time.Minute)
	defer cancel()
	if err := bed.node.SetDefaultRuntime(ctx, runtime); err != nil {
		t.Fatal(err)
	}
	name := "conformance-" + runtime + suffix
	base := filepath.Join(bed.layout.Logs(), name)
	if err := os.Remove(base + ".json"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	log, err := os.Create(base + ".log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(toolsDir(bed.layout), suiteRunner), suiteArgs(name+".json", focus, skip, procs)...)
	cmd.Env = append(os.Environ(), "PATH=/usr/local/sbin:"+os.Getenv("PATH"))
	cmd.WaitDelay = time.Minute
	start := time.Now()
	p := ginkgo.StartProgress(name, time.Minute, log)
	cmd.Stdout, cmd.Stderr = p, p
	err = cmd.Run() // fails when a case fails
	p.Stop()
	r, readErr := ginkgo.Read(base + ".json")
	if readErr != nil {
		t.Fatalf("%v (the suite: %v; see %s)", readErr, err, log.Name())
	}
	r.Name, r.Took = runtime, time.Since(start)
	if err := nothingLeft(ctx); err != nil {
		t.Errorf("after the suite with %s: %v", runtime, err)
	}
	return r
}

// suiteArgs are those of ginkgo's own program and, after "--", those of the suite.
// Cases that cannot run beside others are marked in the suite (ginkgo's Serial).
func suiteArgs(report, focus, skip string, procs int) []string {
	args := []string{
		"run", "--no-color", "--procs", strconv.Itoa(procs), "--timeout", conformanceTimeout.String(),
		"--json-report", report, "--output-dir", bed.layout.Logs(), "--focus", focus,
	}
	for _, pattern := range []string{slow, skip} {
		if pattern != "" {
			args = append(args, "--skip", pattern)
		}
	}
	return append(args, filepath.Join(toolsDir(bed.layout), suiteProgram), "--",
		"--kubeconfig="+bed.node.Kubeconfig(), "--provider=skeleton", "--disable-log-dump", "--num-nodes=1")
}
