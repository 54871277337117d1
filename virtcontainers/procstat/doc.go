// Package procstat reads what Linux says of itself and of a process in /proc, as
// lists of named numbers: of this host's processes, and of files that a guest
// sent. The guest may send anything: number, names and values are bounded here. What
// becomes of the numbers is not its business (virtcontainers.Sandbox.WriteMetrics).
package procstat
