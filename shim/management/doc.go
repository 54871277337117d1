// Package management offers a sandbox to who operates it, on a UNIX socket in its
// record's directory, for root alone:
//
//	GET /metrics        numbers, in Prometheus's text format
//	GET /healthz        200 when the agent answers, else 503
//	GET /sandbox        what runs, as JSON (virtcontainers.Description)
//	GET /debug/pprof/.. the shim's profiles, with enable_pprof
//
// It speaks as much of HTTP as that takes: one request for each connection, GET
// without a body. Go's server would make each pod's shim larger by megabytes
// (docs/adr/0040). The number of connections and the time of each are bounded, and
// no lock is held while a request is answered. Nothing listens once the sandbox
// has ended.
package management
