package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// status is how a check ends.
type status string

const (
	// ok is as it should be.
	ok status = "ok"
	// warning lets pods run, but not as they could.
	warning status = "warning"
	// missing keeps pods from running.
	missing status = "missing"
)

// result is one line of a check.
type result struct {
	// Name is what was looked at.
	Name   string `json:"name"`
	Status status `json:"status"`
	// Found is what is there.
	Found string `json:"found"`
	// Means is what follows for pods, and Do the command or the edit that
	// changes it; empty when there is nothing to say.
	Means string `json:"means,omitempty"`
	Do    string `json:"do,omitempty"`
}

// report is what a check found.
type report struct {
	// CanRun reports whether a pod can run: nothing is missing.
	CanRun bool     `json:"canRun"`
	Checks []result `json:"checks"`
}

func newReport(checks []result) report {
	r := report{CanRun: true, Checks: checks}
	for _, c := range checks {
		if c.Status == missing {
			r.CanRun = false
		}
	}
	return r
}

// writeText writes one line for each check, with what follows from it below.
func (r report) writeText(w io.Writer) {
	var lacking int
	for _, c := range r.Checks {
		fmt.Fprintf(w, "%-7s  %-15s  %s\n", c.Status, c.Name, c.Found)
		if c.Means != "" {
			fmt.Fprintf(w, "%26smeans: %s\n", "", c.Means)
		}
		if c.Do != "" {
			fmt.Fprintf(w, "%26sdo:    %s\n", "", c.Do)
		}
		if c.Status == missing {
			lacking++
		}
	}
	switch {
	case r.CanRun:
		fmt.Fprintln(w, "\nA pod can run here.")
	case lacking == 1:
		fmt.Fprintln(w, "\nA pod cannot run here: one thing is missing.")
	default:
		fmt.Fprintf(w, "\nA pod cannot run here: %d things are missing.\n", lacking)
	}
}

// writeJSON writes any value, indented.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
