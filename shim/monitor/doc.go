// Package monitor reads the management sockets of all pods of this host
// (shim/management), and offers what they say of themselves to Prometheus, as Kata
// Containers' kata-monitor does: one scrape for the host, each sample with its pod's
// id and name. A shim that is dead or hangs costs its own samples and no more:
// pods are asked side by side, each within a time, and an answer has a bound. It runs
// in kata-runtime, never in a shim.
package monitor
