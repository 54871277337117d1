// Package timeline is a pod's start as a list of spans on the host's clock. The shim
// records some of them (internal/spans); the guest's agent records the others,
// whose times are converted from the guest's clock. The package draws the list for
// a terminal, as an SVG, and as a trace for Perfetto and chrome://tracing. It
// makes no calls and records nothing: Sandbox.Timeline does.
package timeline
