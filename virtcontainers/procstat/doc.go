// Package procstat parses files of /proc, about the system and about processes,
// into lists of named numbers: this host's files, and those that a guest sent.
// The guest may send anything: number, names and values are bounded here.
// virtcontainers.Sandbox.WriteMetrics uses the numbers.
package procstat
