// Command fuzz runs every fuzz target of the module, one after the other, each
// for a short time. A target is any "func FuzzX(f *testing.F)" of a test file;
// there is no list from which one could be missing. The targets of a package
// share one program, which is built once.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	perTarget := flag.Duration("time", 5*time.Second, "how long each target runs")
	asJSON := flag.Bool("json", false, `print the events of "go test -json"`)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := fuzzAll(ctx, *perTarget, *asJSON)
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
func fuzzAll(ctx context.Context, perTarget time.Duration, asJSON bool) (ok bool, err error) {
	packages, err := findPackages(ctx)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return false, fmt.Errorf("make directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := newReport(os.Stdout, asJSON, packages)
	ok = true
	for _, p := range packages {
		ok = p.fuzz(ctx, perTarget, dir, out) && ok
	}
	return ok, ctx.Err()
}
