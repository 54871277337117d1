// Command fuzz runs every fuzz target of the module, one after the other, each
// for a short time. A target is any "func FuzzX(f *testing.F)" of a test file;
// there is no list from which one could be missing. The targets of a package
// share one program, which is built once.
//
// A quick check is -one-in: it fuzzes one in so many packages, another choice each
// time. For long runs, -named limits it to the targets that a document names, and
// -at-once runs several, each with one worker; each line then says what a target
// has done.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// options are the command's.
type options struct {
	perTarget time.Duration
	// atOnce is how many targets run concurrently. With more than one, each has
	// one worker; alone a target has one for each CPU.
	atOnce int
	// named is a file that names the targets to run; empty for all.
	named string
	// oneIn is how many packages there are for each whose targets run.
	oneIn int
	json  bool
}

func main() {
	var o options
	flag.DurationVar(&o.perTarget, "time", 5*time.Second, "how long each target runs")
	flag.IntVar(&o.atOnce, "at-once", 1, "how many targets run concurrently")
	flag.StringVar(&o.named, "named", "", "run only the targets that this file names")
	flag.IntVar(&o.oneIn, "one-in", 1, "run the targets of only one in so many packages, drawn anew each time")
	flag.BoolVar(&o.json, "json", false, `print the events of "go test -json"`)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := fuzzAll(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// fuzzAll runs the targets of all packages and reports whether nothing was
// found.
func fuzzAll(ctx context.Context, o options) (ok bool, err error) {
	packages, err := findPackages(ctx)
	if err != nil {
		return false, err
	}
	if packages, err = keepNamed(packages, o.named); err != nil {
		return false, err
	}
	if o.oneIn < 1 {
		return false, fmt.Errorf("-one-in %d: want at least 1", o.oneIn)
	}
	packages = oneIn(packages, o.oneIn, rand.IntN(o.oneIn))
	dir, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return false, fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &runner{options: o, dir: dir, out: newReport(os.Stdout, o.json, packages), slots: make(chan struct{}, max(o.atOnce, 1))}
	var all sync.WaitGroup
	var failed atomic.Bool
	for i, p := range packages {
		wait := r.start(ctx, p, i)
		all.Go(func() {
			if !wait() {
				failed.Store(true)
			}
		})
	}
	all.Wait()
	return !failed.Load(), ctx.Err()
}
