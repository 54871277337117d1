package main

import (
	"fmt"
	"io"
	"time"
)

// steps is the number of progress lines of a full build.
const steps = 5

// report prints the progress of a build.
type report struct {
	out   io.Writer
	step  int
	start time.Time
}

func newReport(out io.Writer) *report {
	return &report{out: out, start: time.Now()}
}

// line prints the next progress line.
func (r *report) line(format string, args ...any) {
	r.step++
	fmt.Fprintf(r.out, "[%d/%d] %s\n", r.step, steps, fmt.Sprintf(format, args...))
}

// upToDate prints that there was nothing to do.
func (r *report) upToDate(dir string) {
	fmt.Fprintf(r.out, "%s is up to date (%d ms)\n", dir, time.Since(r.start).Milliseconds())
}

// table prints the sizes of the outputs.
func (r *report) table(rows []row) {
	fmt.Fprintln(r.out)
	for _, row := range rows {
		fmt.Fprintf(r.out, "  %-40s %10s\n", row.what, mib(row.bytes))
	}
	fmt.Fprintf(r.out, "  done in %.1f s\n", time.Since(r.start).Seconds())
}

// row is one line of the final table.
type row struct {
	what  string
	bytes int
}

// mib formats a size for people.
func mib(bytes int) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
