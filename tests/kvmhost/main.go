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
	smoke     bool
	json      bool
	cpus      int
	memoryMiB int
	timeout   time.Duration
}

func main() {
	var o options
	flag.BoolVar(&o.shell, "shell", false, "run a shell in the machine")
	flag.StringVar(&o.only, "suite", "", "run this suite only")
	flag.BoolVar(&o.smoke, "smoke", false, "run one pod; a host that dies twice is no failure")
	flag.BoolVar(&o.json, "json", false, `print the tests' results as events of "go test -json", too`)
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
		if o.json {
			newCampaign(nil, wanted(o)).printEvents(os.Stdout, err.Error())
		}
	case err != nil:
		fmt.Fprintln(os.Stderr, "kvmhost:", err)
		code = 1
	}
	os.Exit(code)
}

// errCannot marks errors by which the emulated host cannot run on this machine, as
// opposed to failures.
var errCannot = errors.New("this machine cannot run the emulated host")

// run boots the machine, does what the options ask for and returns the exit
// code.
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
	suites, err := chosen(wanted(o), o.only)
	if err != nil {
		return 1, err
	}
	if err := b.prepare(ctx, suites); err != nil {
		return 1, err
	}
	if len(suites) > 0 {
		return b.play(ctx, o, suites)
	}
	m, err := b.boot(ctx, o)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, m.stop(context.WithoutCancel(ctx))) }()
	if o.shell {
		return m.shell(ctx, []string{"/bin/bash", "-i"})
	}
	return m.shell(ctx, o.command)
}

// wanted returns the suites that the options ask for.
func wanted(o options) []suite {
	switch {
	case o.shell || len(o.command) > 0:
		return nil
	case o.smoke:
		return smoke
	}
	return suites
}

// play runs the suites, on another machine when one dies, and prints the
// results.
func (b *bed) play(ctx context.Context, o options, suites []suite) (code int, err error) {
	c := newCampaign(func(ctx context.Context) (host, error) { return b.boot(ctx, o) }, suites)
	c.say = b.say
	if o.smoke {
		c.machines = smokeMachines
	}
	if err := c.run(ctx); err != nil {
		return 1, err
	}
	if o.json {
		c.printEvents(os.Stdout, "the emulated host died: "+c.lastDeath)
	}
	b.say("logs are in %s", b.results())
	return c.verdict(o.smoke), nil
}
