package client

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// suiteDir is where tests/tools/clientsuite.sh puts the suite.
func suiteDir(l harness.Layout) string {
	return filepath.Join(l.Build(), "containerd-client-"+harness.ContainerdVersion)
}

// The states of a test.
const (
	passed  = "PASS"
	failed  = "FAIL"
	skipped = "SKIP" // by the suite itself: the host lacks something
)

// outcome is the result of one test.
type outcome struct {
	state string
	// output is the test's output.
	output string
}

// results are the outcomes of one run by the tests' names.
type results map[string]outcome

func (r results) count(state string) int {
	n := 0
	for _, o := range r {
		if o.state == state {
			n++
		}
	}
	return n
}

// suite is the suite's program and what it needs to run.
type suite struct {
	layout harness.Layout
	// env is added to its environment.
	env []string
	// timeout bounds one run.
	timeout time.Duration
}

// run runs the tests whose names match, except those that match skip, with a
// runtime. The suite's output goes to the log of that name in build/logs.
func (s suite) run(ctx context.Context, r harness.Runtime, tests, skip, name string) (results, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+time.Minute)
	defer cancel()
	log, err := os.Create(filepath.Join(s.layout.Logs(), name+".log"))
	if err != nil {
		return nil, fmt.Errorf("keep the suite's output: %w", err)
	}
	defer log.Close()
	args := []string{
		"-test.v", "-test.root", "-test.timeout", s.timeout.String(), "-test.run", tests, "-test.skip", skip,
		// Pods under TCG use all of a small machine.
		"-test.parallel", "3",
	}
	cmd := exec.CommandContext(ctx, filepath.Join(suiteDir(s.layout), "client.test"), args...)
	cmd.Dir = suiteDir(s.layout)
	cmd.Env = append(os.Environ(), s.env...)
	if r.VM {
		cmd.Env = append(cmd.Env, "TEST_RUNTIME="+r.Type)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second // a shim may hold the pipe
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for the suite's output: %w", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the suite: %w", err)
	}
	in.Close()
	found, ended := parse(io.TeeReader(out, log))
	err = cmd.Wait() // fails when a test fails
	if !ended {
		return found, fmt.Errorf("the suite with %s has not ended by itself: %w; see %s", r.Name, err, log.Name())
	}
	return found, nil
}

var (
	begin = regexp.MustCompile(`^\s*=== (?:RUN|CONT|NAME)\s+(\S+)`)
	end   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
)

// parse reads a test program's output with -test.v (cmd/go, testing). ended
// reports whether it ran to completion. A test that has begun but not ended
// failed.
func parse(output io.Reader) (found results, ended bool) {
	found = results{}
	current := ""
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		switch m := end.FindStringSubmatch(line); {
		case m != nil:
			found[m[2]] = outcome{m[1], found[m[2]].output}
			current = m[2]
		case begin.MatchString(line):
			current = begin.FindStringSubmatch(line)[1]
			if _, ok := found[current]; !ok {
				found[current] = outcome{state: failed}
			}
		case line == "PASS\n" || line == "FAIL\n":
			ended = true
		case current != "":
			o := found[current]
			o.output += line
			found[current] = o
		}
		if err != nil {
			return found, ended
		}
	}
}

// shown returns the end of a test's output.
func (o outcome) shown() string {
	lines := strings.Split(strings.TrimSpace(o.output), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
