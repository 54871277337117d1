package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/katabox/katabox/tests/harness"
)

// The project's goals on a machine without KVM.
const (
	goalRatio   = 1.5
	goalShimMiB = 20
)

// series is one thing measured several times, in milliseconds.
type series []float64

// median is the middle, or the mean of the two middles; 0 of nothing.
func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := append(series(nil), s...)
	sort.Float64s(sorted)
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// percentile is the smallest value that p of 100 values do not exceed.
func (s series) percentile(p int) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := append(series(nil), s...)
	sort.Float64s(sorted)
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// print writes the report: times, steps, memory, and how to get it again.
func (r *result) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d rounds, containerd %s, %d CPUs, %s\n\n", r.rounds, r.release, runtime.NumCPU(), r.accel())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "time, ms\tmedian\tmin\tmax\tto runc\tto the kernel's boot\t")
	r.timeRow(w, "runc: ctr run --rm busybox true", r.runc)
	r.timeRow(w, "kata: ctr run --rm busybox true", r.kata)
	r.timeRow(w, "the kernel's boot: plain q35, to a trivial init", r.plain)
	r.timeRow(w, "the same on the pod's tuned machine", r.bare)
	_ = w.Flush()
	r.printSteps(out)
	r.printWarm(out)
	r.printMemory(out)
	r.volumes.print(out)
	r.share.print(out)
	r.network.print(out)
	fmt.Fprintf(out, "\ngoals: kata within %.1f of the kernel's boot (now %.2f; of the tuned one %.2f), shim PSS at most %d MiB (now %.1f)\n",
		goalRatio, r.kata.median()/r.plain.median(), r.kata.median()/r.bare.median(), goalShimMiB, float64(r.pod.pss[harness.KindShim])/1024)
	fmt.Fprintf(out, "\nmade by: go run ./tests/bench -n %d -containerd %s\n", r.rounds, r.release)
}

// accel is what QEMU ran the guest with.
func (r *result) accel() string {
	if i := slices.Index(r.pod.vmArgs, "-accel"); i >= 0 && i+1 < len(r.pod.vmArgs) {
		return r.pod.vmArgs[i+1]
	}
	return "unknown accelerator"
}

func (r *result) timeRow(w io.Writer, name string, s series) {
	fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t\n", name, s.median(), slices.Min(s), slices.Max(s),
		s.median()/r.runc.median(), s.median()/r.plain.median())
}

func (r *result) printSteps(out io.Writer) {
	fmt.Fprintf(out, "\nsteps of the boot, median ms (guest_*: the guest's clock)\n")
	var words []string
	for _, name := range slices.Sorted(maps.Keys(r.steps)) {
		words = append(words, fmt.Sprintf("%s=%.1f", name, r.steps[name].median()))
	}
	fmt.Fprintln(out, "  "+strings.Join(words, " "))
}

func (r *result) printWarm(out io.Writer) {
	fmt.Fprintf(out, "\na running container\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\texec of true, ms: median\tp99\tto runc\tstdout, MiB/s\tto runc\t")
	runc := r.warm[harness.Runc.Name]
	for _, name := range []string{harness.Runc.Name, harness.Kata.Name} {
		m := r.warm[name]
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.0f\t%.2f\t\n", name, m.execs.median(), m.execs.percentile(99),
			m.execs.median()/runc.execs.median(), m.output, m.output/runc.output)
	}
	_ = w.Flush()
}

func (r *result) printMemory(out io.Writer) {
	fmt.Fprintf(out, "\na pod of pause and four containers, MiB\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, kind := range []string{harness.KindShim, harness.KindVMM, harness.KindVirtiofsd} {
		fmt.Fprintf(w, "%s PSS\t%.1f\t\n", kind, float64(r.pod.pss[kind])/1024)
	}
	fmt.Fprintf(w, "agent RSS (in the guest, at boot)\t%.1f\t\n", float64(r.pod.agentRSS)/(1<<20))
	_ = w.Flush()
}
