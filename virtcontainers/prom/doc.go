// Package prom writes metrics in Prometheus's text format, and counts durations
// in histograms. It is what a shim needs of a metrics library, without the HTTP
// client that comes with one (docs/adr/0040). It neither collects numbers nor
// serves them.
package prom
