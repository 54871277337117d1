package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/katabox/katabox/tests/harness"
)

// The kinds of QEMU's memory, in the order in which they are printed.
const (
	memGuest      = "guest"
	memTranslated = "translated code"
	memHeap       = "heap"
	memFiles      = "programs"
)

var memKinds = []string{memGuest, memTranslated, memHeap, memFiles}

// memKind returns the kind of a mapping, from its permissions and its name in
// smaps (proc_pid_smaps(5)).
func memKind(permissions, name string) string {
	switch {
	case strings.Contains(name, "memfd:"):
		return memGuest
	case strings.HasPrefix(name, "/"):
		return memFiles
	case strings.Contains(permissions, "wx"):
		return memTranslated // TCG's buffer
	}
	return memHeap
}

// addMappings adds up the PSS of a process's mappings, in KiB by kind.
func addMappings(sum map[string]int64, smaps string) {
	kind := memHeap
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if head := !strings.HasSuffix(fields[0], ":"); head {
			kind = memKind(fields[1], strings.Join(fields[min(5, len(fields)):], " "))
			continue
		}
		var kib int64
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
			sum[kind] += kib
		}
	}
}

// vmmMappings returns the PSS of the daemon's QEMUs, in KiB by kind of memory.
func vmmMappings(d *harness.Daemon) (map[string]int64, error) {
	procs, err := d.Processes()
	if err != nil {
		return nil, err
	}
	sum := make(map[string]int64)
	for _, p := range procs {
		if p.Kind() != harness.KindVMM {
			continue
		}
		smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", p.PID))
		if err != nil {
			return nil, fmt.Errorf("read mappings of %v: %w", p, err)
		}
		addMappings(sum, string(smaps))
	}
	return sum, nil
}

// printMappings prints what one QEMU's memory is.
func printMappings(out io.Writer, n int, all ...crowd) {
	fmt.Fprintf(out, "\nQEMU's part of it\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\t\n", strings.Join(memKinds, "\t"))
	for _, c := range all {
		fmt.Fprintf(w, "%s\t", c.name)
		for _, kind := range memKinds {
			fmt.Fprintf(w, "%.1f\t", float64(c.vmm[kind])/1024/float64(n))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}
