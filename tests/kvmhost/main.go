package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// options are the command line's.
type options struct {
	shell     bool
	command   []string
	only      string
	cpus      int
	memoryMiB int
	timeout   time.Duration
}

func main() {
	var o options
	flag.BoolVar(&o.shell, "shell", false, "run a shell in the machine")
	flag.StringVar(&o.only, "suite", "", "run this suite only")
	flag.IntVar(&o.cpus, "cpus", 2, "CPUs of the machine")
	flag.IntVar(&o.memoryMiB, "memory", 4096, "memory of the machine, in MiB")
	flag.DurationVar(&o.timeout, "timeout", 40*time.Minute, "how long the whole may take")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: kvmhost [flags] [-- COMMAND [ARG...]]")
		flag.PrintDefaults()
	}
	flag.Parse()
	o.command = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, o)
	stop()
	switch {
	case errors.Is(err, errCannot):
		fmt.Fprintln(os.Stderr, "kvmhost: SKIP:", err)
		code = 0
		if o.shell || len(o.command) > 0 {
			code = 1
		}
	case err != nil:
		fmt.Fprintln(os.Stderr, "kvmhost:", err)
		code = 1
	}
	os.Exit(code)
}

// errCannot marks what makes the bed impossible on this machine, as opposed to
// what fails.
var errCannot = errors.New("this machine cannot run the bed")

// run boots the machine, does what is wanted and returns the exit code.
func run(ctx context.Context, o options) (code int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("all took longer than %v (-timeout)", o.timeout))
	defer cancel()
	layout, err := harness.FindLayout()
	if err != nil {
		return 1, err
	}
	if err := missing(layout, o.memoryMiB); err != nil {
		return 1, err
	}
	b := newBed(layout)
	suites := suites
	if o.shell || len(o.command) > 0 {
		suites = nil
	}
	if suites, err = chosen(suites, o.only); err != nil {
		return 1, err
	}
	if err := b.prepare(ctx, suites); err != nil {
		return 1, err
	}
	m, err := b.boot(ctx, o)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, m.stop(context.WithoutCancel(ctx))) }()
	switch {
	case o.shell:
		return m.shell(ctx, []string{"/bin/bash", "-i"})
	case len(o.command) > 0:
		return m.shell(ctx, o.command)
	}
	return runSuites(ctx, m, suites)
}
