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

// options are the command line's.
type options struct {
	release string
	fresh   bool
	timeout time.Duration
	command []string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == insideArg {
		os.Exit(inside(os.Args[2:]))
	}
	var o options
	flag.StringVar(&o.release, "release", "trixie", "Debian's code name")
	flag.BoolVar(&o.fresh, "fresh", false, "make the root file system and the builds in it anew")
	flag.DurationVar(&o.timeout, "timeout", 40*time.Minute, "how long the whole may take")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: distro [flags] [-- COMMAND [ARG...]]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if o.command = flag.Args(); len(o.command) == 0 {
		o.command = []string{"make", "--no-print-directory", "demo", "demo-virtiofsd"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "distro:", err)
		code = 1
	}
	os.Exit(code)
}

// run makes the root file system if it does not exist and runs the command in
// it. The code is the command's.
func run(ctx context.Context, o options) (code int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("all took longer than %v (-timeout)", o.timeout))
	defer cancel()
	if os.Geteuid() != 0 {
		return 1, fmt.Errorf("root is needed: debootstrap, mounts and virtual machines")
	}
	r, err := findRoot(o.release)
	if err != nil {
		return 1, err
	}
	unlock, err := r.lock()
	if err != nil {
		return 1, err
	}
	defer unlock()
	if err := r.prepare(ctx, o.fresh); err != nil {
		return 1, err
	}
	return r.enter(ctx, o.command)
}
