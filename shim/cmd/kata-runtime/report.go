package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// status is the result of a check.
type status string

const (
	// ok: nothing is to be done.
	ok status = "ok"
	// warning: pods run, but with less than they could have.
	warning status = "warning"
	// missing: pods cannot run.
	missing status = "missing"
)

// result is one line of a check.
type result struct {
	// Name is what was checked.
	Name   string `json:"name"`
	Status status `json:"status"`
	// Found is what the check found.
	Found string `json:"found"`
	// Means is the consequence for pods, and Do the command or the edit that
	// fixes it; empty if there is none.
	Means string `json:"means,omitempty"`
	Do    string `json:"do,omitempty"`
}

// report has the results of all checks.
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

// writeText writes one line for each check, with its consequence below.
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
