// Package timeline is a pod's start as a list of spans on one clock, the host's:
// what the shim recorded (internal/spans), and what the guest's agent recorded,
// converted from the guest's clock by comparing the two. It draws the list for
// a terminal, as an SVG, and as a trace for Perfetto and chrome://tracing. It
// makes no calls and records nothing: Sandbox.Timeline does.
package timeline
