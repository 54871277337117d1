package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

func main() {
	rounds := flag.Int("n", 10, "how often each thing is measured")
	release := flag.String("containerd", "1.6", "containerd release: 1.6 (Debian's) or 2.4 (make containerd)")
	network := flag.Bool("network", false, "measure the network only")
	volumes := flag.Bool("volumes", false, "measure volumes and disks only")
	share := flag.Bool("share", false, "measure what serves the files only")
	execs := flag.Bool("execs", false, "measure execs only")
	recovery := flag.Bool("recovery", false, "measure how soon what was lost runs again")
	starts := flag.Bool("starts", false, "measure starts by booting, from a template and from a pool only")
	crowd := flag.Int("crowd", 0, "measure only what that many pods at once cost in memory: booted, hibernating, from a template")
	checkpoint := flag.Bool("checkpoint", false, "measure checkpoints, and starts from them, only")
	templateSteps := flag.Bool("template-steps", false, "measure the parts of starts from a template only")
	poolSteps := flag.Bool("pool-steps", false, "measure the parts of starts from a pool only")
	start := flag.Bool("timeline", false, "measure and draw cold starts only")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var alone part
	switch {
	case *network:
		alone = benchNetwork
	case *share:
		alone = benchShare
	case *volumes:
		alone = benchVolumes
	case *execs:
		alone = func(ctx context.Context, d *harness.Daemon) error { return benchExecs(ctx, d, *rounds) }
	case *recovery:
		alone = func(ctx context.Context, d *harness.Daemon) error { return benchRecovery(ctx, d, *rounds) }
	case *starts:
		alone = func(ctx context.Context, d *harness.Daemon) error { return benchStarts(ctx, d, *rounds) }
	case *templateSteps:
		alone = func(ctx context.Context, d *harness.Daemon) error { return fromTemplate().benchSteps(ctx, d, *rounds) }
	case *poolSteps:
		alone = func(ctx context.Context, d *harness.Daemon) error { return fromPool().benchSteps(ctx, d, *rounds) }
	case *checkpoint:
		alone = func(ctx context.Context, d *harness.Daemon) error { return benchCheckpoint(ctx, d, *rounds) }
	case *crowd > 0:
		alone = func(ctx context.Context, d *harness.Daemon) error { return benchCrowd(ctx, d, *crowd) }
	case *start:
		alone = func(ctx context.Context, d *harness.Daemon) error { return benchTimeline(ctx, d, *rounds) }
	}
	err := bench(ctx, *release, *rounds, alone)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part measures and prints one part of the benchmark.
type part func(context.Context, *harness.Daemon) error

// bench measures and prints: all, or one part alone. The daemon is stopped in
// any case.
func bench(ctx context.Context, releaseName string, rounds int, alone part) (err error) {
	if rounds < 1 {
		return errors.New("-n: want at least 1")
	}
	layout, err := harness.FindLayout()
	if err != nil {
		return err
	}
	release, err := harness.FindRelease(layout, releaseName)
	if err != nil {
		return err
	}
	d, err := harness.Start(ctx, harness.Options{Layout: layout, Release: release, Runtime: harness.Kata, Kata: harness.KataConfig{Extra: shareConfig}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop(context.WithoutCancel(ctx))) }()
	if alone != nil {
		return alone(ctx, d)
	}
	result, err := measure(ctx, d, rounds)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.LogTail(20))
	}
	result.print(os.Stdout)
	return result.timeline.WriteText(os.Stdout, timelineText)
}

// result is all that one run measured.
type result struct {
	rounds     int
	release    string
	runc, kata series
	// plain and bare are the kernel's boot to a trivial init: untuned, and on
	// the pod's own machine.
	plain, bare series
	// steps holds the durations that the shim logged, by step.
	steps map[string]series
	pod   podMemory
	// warm is what a running container does, by runtime.
	warm    map[string]*warm
	network *throughput
	volumes *volumes
	share   *sharing
	// timeline is the median cold start.
	timeline *timeline.Timeline
}

// measure takes a warm-up of each first: the first pod reads QEMU, kernel and
// image from disk.
func measure(ctx context.Context, d *harness.Daemon, rounds int) (*result, error) {
	r := &result{rounds: rounds, release: d.Release().Name}
	fmt.Fprintln(os.Stderr, "bench: memory of a pod of pause and four containers")
	var err error
	if r.pod, err = measurePod(ctx, d); err != nil {
		return nil, err
	}
	machine, err := newBareMachine(ctx, d, r.pod.vmArgs)
	if err != nil {
		return nil, err
	}
	for _, runtime := range []harness.Runtime{harness.Runc, harness.Kata} {
		if _, err := timeCtrRun(ctx, d, runtime); err != nil {
			return nil, err
		}
	}
	mark := d.LogSize()
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", i+1, rounds)
		if err := r.round(ctx, d, machine); err != nil {
			return nil, err
		}
	}
	if r.steps, err = bootSteps(d.LogSince(mark, 100000)); err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "bench: execs and output of a running container")
	if r.warm, err = measureWarm(ctx, d, 10*rounds); err != nil {
		return nil, err
	}
	if r.volumes, err = measureVolumes(ctx, d); err != nil {
		return nil, err
	}
	if r.share, err = measureShare(ctx, d); err != nil {
		return nil, err
	}
	if r.network, err = measureThroughput(ctx, d); err != nil {
		return nil, err
	}
	r.timeline, err = medianTimeline(ctx, d, rounds)
	return r, err
}

// round measures each thing once, in turn, so that other load on the machine
// affects all of them.
func (r *result) round(ctx context.Context, d *harness.Daemon, machine *bareMachine) error {
	for _, m := range []struct {
		into *series
		take func() (float64, error)
	}{
		{&r.runc, func() (float64, error) { return timeCtrRun(ctx, d, harness.Runc) }},
		{&r.kata, func() (float64, error) { return timeCtrRun(ctx, d, harness.Kata) }},
		{&r.plain, func() (float64, error) { return machine.plain().boot(ctx) }},
		{&r.bare, func() (float64, error) { return machine.boot(ctx) }},
	} {
		ms, err := m.take()
		if err != nil {
			return err
		}
		*m.into = append(*m.into, ms)
	}
	return nil
}
