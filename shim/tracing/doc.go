// Package tracing sends OpenTelemetry traces of a shim's work, if the
// configuration enables them: the engine's calls, the pod's boot, and each
// container's creation and start.
//
//	engine's calls ── Intercept ─┐
//	                             ├─ compose ─ Batch (JSON) ─> kata-runtime export-traces ── OTLP ──> receiver
//	timeline of the sandbox ─────┘            one process for each batch
//
// A shim links neither HTTP nor TLS (adr/0046), so another program sends the
// batches: Run of package export. It is started at most once a second, and only
// after calls that changed something; the engine's calls never wait for it.
//
// An engine that traces itself (containerd 2.0 and later) sends its trace
// context with each call (W3C Trace Context, in ttrpc's metadata), and the spans
// become part of its trace. Without one, each pod has its own trace.
package tracing
