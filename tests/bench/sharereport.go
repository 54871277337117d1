package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/katabox/katabox/tests/harness"
)

// benchShare measures and prints the share alone.
func benchShare(ctx context.Context, d *harness.Daemon) error {
	s, err := measureShare(ctx, d)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.LogTail(20))
	}
	s.print(os.Stdout)
	fmt.Fprintf(os.Stdout, "\nmade by: go run ./tests/bench -share -containerd %s\n", d.Release().Name)
	return nil
}

// print writes both tables; a ratio is the shim's part of what the other takes.
func (s *sharing) print(out io.Writer) {
	fmt.Fprintf(out, "\nfiles, median ms of %d rounds (execs: %d, runs: %d)\n", shareRounds, shareRounds*shareExecs, shareRounds*shareRuns)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, p := range s.peers {
		fmt.Fprintf(w, "\t%s", p.name)
	}
	for _, p := range s.others() {
		fmt.Fprintf(w, "\tshim to %s", p.name)
	}
	fmt.Fprintln(w, "\t")
	for _, row := range s.rows {
		fmt.Fprint(w, row)
		for _, p := range s.peers {
			fmt.Fprintf(w, "\t%.1f", s.took[row][p.name].median())
		}
		for _, p := range s.others() {
			fmt.Fprintf(w, "\t%.2f", s.took[row]["shim"].median()/s.took[row][p.name].median())
		}
		fmt.Fprintln(w, "\t")
	}
	_ = w.Flush()
	s.printPods(out)
}

// others are the peers that the shim is compared with: it is the last.
func (s *sharing) others() []peer { return s.peers[:len(s.peers)-1] }

func (s *sharing) printPods(out io.Writer) {
	fmt.Fprintf(out, "\nPSS of a pod of pause and four containers, MiB\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "share by\t%s\t%s\t%s\tall\t\n", harness.KindShim, harness.KindVMM, harness.KindVirtiofsd)
	for _, p := range s.peers {
		pod, ok := s.pods[p.name]
		if !ok {
			continue
		}
		shim, vmm, daemon := pod.pss[harness.KindShim], pod.pss[harness.KindVMM], pod.pss[harness.KindVirtiofsd]
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t\n", p.name, float64(shim)/1024, float64(vmm)/1024, float64(daemon)/1024, float64(shim+vmm+daemon)/1024)
	}
	_ = w.Flush()
}
