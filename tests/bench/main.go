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

// part measures and prints one part of the benchmark, each thing so often.
type part func(ctx context.Context, d *harness.Daemon, rounds int) error

// parts are what can be measured alone, by its flag.
var parts = []struct {
	flag, what string
	measure    part
}{
	{"network", "the network", func(ctx context.Context, d *harness.Daemon, _ int) error { return benchNetwork(ctx, d) }},
	{"volumes", "volumes and disks", func(ctx context.Context, d *harness.Daemon, _ int) error { return benchVolumes(ctx, d) }},
	{"share", "what serves the files", func(ctx context.Context, d *harness.Daemon, _ int) error { return benchShare(ctx, d) }},
	{"execs", "execs", benchExecs},
	{"recovery", "how soon what was lost runs again", benchRecovery},
	{"starts", "starts by booting, from a template and from a pool", benchStarts},
	{"checkpoint", "checkpoints, and starts from them", benchCheckpoint},
	{"template-steps", "the parts of starts from a template", stepsOf(fromTemplate)},
	{"pool-steps", "the parts of starts from a pool", stepsOf(fromPool)},
	{"timeline", "and draw cold starts", benchTimeline},
}

func main() {
	rounds := flag.Int("n", 10, "how often each thing is measured")
	release := flag.String("containerd", "1.6", "containerd release: 1.6 (Debian's) or 2.4 (make containerd)")
	crowd := flag.Int("crowd", 0, "measure only what that many pods at once cost in memory: booted, hibernating, from a template")
	var alone part
	for _, p := range parts {
		flag.BoolFunc(p.flag, "measure "+p.what+" only", func(string) error { alone = p.measure; return nil })
	}
	flag.Parse()
	if *crowd > 0 {
		alone = func(ctx context.Context, d *harness.Daemon, _ int) error { return benchCrowd(ctx, d, *crowd) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, *release, *rounds, alone)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

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
		return alone(ctx, d, rounds)
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
