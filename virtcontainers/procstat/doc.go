// Package procstat parses files of /proc, about the system and about processes,
// into lists of named numbers: this host's files, and those that a guest sent.
// The guest may send anything: number, names and values are bounded here. The
// numbers are used elsewhere (virtcontainers.Sandbox.WriteMetrics).
package procstat
