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

func main() {
	release := flag.String("containerd", "1.6", "containerd release: 1.6 (Debian's) or 2.4 (make containerd)")
	runtime := flag.String("runtime", harness.Kata.Name, "kata, or runc to compare with")
	virtiofsd := flag.String("virtiofsd", "", "path of a virtiofsd that serves the share in the shim's place")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := show(ctx, *release, *runtime, *virtiofsd)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo failed: %v\n", err)
		os.Exit(1)
	}
}

// show runs the demo from start to end within two minutes.
func show(ctx context.Context, release, runtime, virtiofsd string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	options, err := options(release, runtime, virtiofsd)
	if err != nil {
		return err
	}
	s := newStage(os.Stdout)
	s.step("start a private containerd %s, and give it images made from busybox-static", options.Release.Version(ctx))
	d, err := harness.Start(ctx, options)
	if err != nil {
		return err
	}
	s.note("%s, runtime %s", d.Dir, options.Runtime.Type)
	if virtiofsd != "" {
		s.note("%s serves the share", virtiofsd)
	}
	err = play(ctx, s, d)
	if err != nil {
		err = fmt.Errorf("%w\n\nlast lines of %s", err, d.LogTail(25))
	}
	s.step("stop containerd and look for anything left behind")
	if leaks := d.Stop(context.WithoutCancel(ctx)); leaks != nil {
		return errors.Join(err, leaks)
	}
	if err == nil {
		s.note("no process, mount, socket or file is left")
		s.end()
	}
	return err
}

func options(release, runtime, virtiofsd string) (harness.Options, error) {
	o := harness.Options{Runtime: harness.Kata}
	o.Kata.Virtiofsd = virtiofsd
	if os.Geteuid() != 0 {
		return o, errors.New("containerd needs root: run it as root")
	}
	switch runtime {
	case harness.Kata.Name:
	case harness.Runc.Name:
		o.Runtime = harness.Runc
	default:
		return o, fmt.Errorf("unknown runtime %q: want kata or runc", runtime)
	}
	var err error
	if o.Layout, err = harness.FindLayout(); err != nil {
		return o, err
	}
	o.Release, err = harness.FindRelease(o.Layout, release)
	return o, err
}
