package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// options are the command line's.
type options struct {
	tier     string
	only     string
	list     bool
	lanes    int
	deadline time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.tier, "tier", tierAll, "which suites: "+strings.Join(tiers, ", "))
	flag.StringVar(&o.only, "only", "", "run these suites alone, and what they need (names with commas)")
	flag.BoolVar(&o.list, "list", false, "list the tier's suites and end")
	flag.IntVar(&o.lanes, "lanes", 2, "how many suites run at a time")
	flag.DurationVar(&o.deadline, "deadline", 84*time.Minute, "how long all of it may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run runs what the options ask for and reports whether all passed.
func run(ctx context.Context, o options) (ok bool, err error) {
	root, packages, err := checkout(ctx)
	if err != nil {
		return false, err
	}
	suites, err := table(root, o.tier, packages)
	if err != nil {
		return false, err
	}
	if o.list {
		for _, s := range suites {
			fmt.Println(s.name)
		}
		return true, nil
	}
	if suites, err = chosen(suites, words(o.only)); err != nil {
		return false, err
	}
	if o.lanes < 1 {
		return false, errors.New("-lanes: want at least 1")
	}
	r := &runner{
		root:    root,
		results: filepath.Join(root, "build", "results"),
		screen:  newScreen(os.Stdout, isTerminal(os.Stdout)),
	}
	if err := empty(r.results); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.deadline, fmt.Errorf("all of it took longer than %v (-deadline)", o.deadline))
	defer cancel()
	go r.screen.watch(ctx)
	return r.all(ctx, suites, o.lanes), nil
}

// all runs the suites, then the second tries, and prints the summary.
func (r *runner) all(ctx context.Context, suites []suite, lanes int) (ok bool) {
	reports := r.runAll(ctx, suites, lanes)
	r.secondTries(ctx, reports)
	r.screen.say("logs of all suites are in %s", r.results)
	return summarize(os.Stdout, reports)
}

// checkout returns the module's root, and the packages in it that have tests,
// as "./path". It asks the go command, because this program must not link the
// code that it tests.
func checkout(ctx context.Context) (root string, packages []string, err error) {
	out, err := goOutput(ctx, "", "env", "GOMOD")
	if err != nil {
		return "", nil, err
	}
	root = filepath.Dir(strings.TrimSpace(out))
	out, err = goOutput(ctx, root, "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	if err != nil {
		return "", nil, err
	}
	for _, path := range strings.Fields(out) {
		packages = append(packages, "./"+shortPackage(path))
	}
	return root, packages, nil
}

// goOutput runs go in dir and returns its stdout.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return string(out), nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func words(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// empty makes dir an empty directory.
func empty(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("empty results: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make results: %w", err)
	}
	return nil
}

func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
