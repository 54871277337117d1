// Package timeline is a pod's start as a list of spans on one clock, the host's:
// what the shim recorded (internal/spans), and what the guest says that its
// agent recorded, moved from the guest's clock by comparisons of the two. It
// draws the list for a terminal, as an SVG, and as a trace for Perfetto and
// chrome://tracing. It asks nobody and records nothing: Sandbox.Timeline does.
package timeline
