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

// buildTimeout bounds a whole run, including the download.
const buildTimeout = 15 * time.Minute

// options are the flags.
type options struct {
	agent         string
	busybox       string
	iptables      string
	out           string
	cache         string
	kernelPackage string
	debs          []string
	modules       []string
	compress      string
	force         bool
}

func main() {
	os.Exit(run())
}

func run() int {
	var opts options
	flag.StringVar(&opts.agent, "agent", "bin/kata-agent", "static agent binary `path`")
	flag.StringVar(&opts.busybox, "busybox", "", "static busybox `path`, for a guest that can be debugged from within")
	flag.StringVar(&opts.iptables, "iptables", "", "iptables `path`, for a guest whose rules the host can read and set")
	flag.StringVar(&opts.out, "out", "build/guest", "output `directory`")
	flag.StringVar(&opts.cache, "cache", "build/cache", "`directory` for downloaded packages")
	flag.StringVar(&opts.kernelPackage, "kernel-package", "linux-image-cloud-amd64", "Debian kernel package `name`")
	flag.Func("deb", "use this package `file`, without apt; may be repeated", func(file string) error {
		opts.debs = append(opts.debs, file)
		return nil
	})
	flag.Func("module", "add this kernel module by `name`, with those that it needs; may be repeated", func(name string) error {
		opts.modules = append(opts.modules, name)
		return nil
	})
	flag.StringVar(&opts.compress, "compress", compressLZ4, "`format` of the initrd: lz4 or none")
	flag.BoolVar(&opts.force, "force", false, "build even if the outputs are up to date")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "guest-image: unexpected argument %q\n", flag.Arg(0))
		return 2
	}
	if opts.compress != compressLZ4 && opts.compress != compressNone {
		fmt.Fprintf(os.Stderr, "guest-image: -compress is %q, not %s or %s\n", opts.compress, compressLZ4, compressNone)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	if err := build(ctx, opts, newReport(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "guest-image:", err)
		return 1
	}
	return 0
}
